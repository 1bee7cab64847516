"""Where pickles are loaded, and where not: unpickling runs code of whoever wrote them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import NonTensorStack, TensorDict

import transferqueue as tq
from tests.support.other_users import AS_ROOT, OTHER, become
from tests.support.sessions import Forked, left_behind
from transferqueue.samplers import BaseSampler, GRPOGroupNSampler, SeqlenBalancedSampler
from transferqueue.samplers.states import encode_state, needs_pickle
from transferqueue.storage.checked_json import check, write_checked
from transferqueue.storage.names import SessionPaths, new_session_name

pytestmark = pytest.mark.timeout(120)
SMALL = {"storage.size": "8MiB", "storage.index_size": "2MiB"}


class Evil:
    """Unpickled, it leaves a mark."""

    mark = ""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.mark,)


@pytest.fixture
def mark(tmp_path: Path) -> Iterator[Path]:
    """Appears when an `Evil` is unpickled."""
    Evil.mark = str(tmp_path / "code ran")
    yield Path(Evil.mark)
    assert not os.path.exists(Evil.mark), "code of a pickle ran"


class OwnSampler(BaseSampler):
    """A user's class: only pickle brings it to other processes."""

    def sample(self, ready_indexes: list[int], batch_size: int, *_: Any, **__: Any) -> tuple[list[int], list[int]]:
        return ready_indexes[:batch_size], ready_indexes[:batch_size]


def evil_rows(client: tq.TransferQueueClient) -> tq.BatchMeta:
    return client.put(TensorDict({"x": torch.arange(2), "y": NonTensorStack("a", Evil())}, [2]), partition_id="p")


def test_a_process_that_allows_no_pickles_loads_none(mark: Path) -> None:
    with tq.init(**SMALL, allow_pickle=False) as session:
        client = session.client
        meta = evil_rows(client)
        with pytest.raises(tq.PickleNotAllowedError, match="'y'"):
            client.get_data(meta)
        assert client.get_data(meta, fields=["x"])["x"].tolist() == [0, 1]
        for call in (lambda: client.kv_put("k", "q", tag={"t": Evil()}), lambda: client.kv_list("q")):
            with pytest.raises(tq.PickleNotAllowedError, match="a tag"):
                call()
        state = client._store.task_snapshot("p", "t", ["x"])
        evil = encode_state({"s": Evil()})
        assert client._store.task_commit("p", "t", state.task_version, [], meta.index_array[:0], evil)
        with pytest.raises(tq.PickleNotAllowedError, match="sampler"):
            client.get_meta(["x"], 1, "p", task_name="t")


def test_a_sampler_of_the_creators_own_is_not_unpickled_where_that_is_off() -> None:
    with tq.init(**SMALL, allow_pickle=False, **{"controller.sampler": OwnSampler()}) as session:
        session.client.put(TensorDict({"x": torch.arange(2)}, [2]), partition_id="p")
        with pytest.raises(tq.PickleNotAllowedError, match="OwnSampler"):
            session.client.get_meta(["x"], 1, "p", task_name="t")


@pytest.mark.parametrize("sampler", [GRPOGroupNSampler(2), SeqlenBalancedSampler(2, 2)], ids=lambda s: type(s).__name__)
def test_built_in_samplers_and_their_states_take_no_pickle(sampler: BaseSampler, tmp_path: Path) -> None:
    asks = {"dp_rank": 0, "batch_index": 0, "task_name": "t", "partition_id": "p"}
    with tq.init(**SMALL, allow_pickle=False, **{"controller.sampler": sampler}) as session:
        assert "pickle" not in session.attachment.description.sampler
        client = session.client
        client.put(TensorDict({"x": torch.arange(8)}, [8]), partition_id="p")
        first = client.get_meta(["x"], 2, "p", task_name="t", sampling_config=asks)
        state = client._store.task_snapshot("p", "t", ["x"]).sampler_state
        assert state
        assert not needs_pickle(state)
        client.save_checkpoint(tmp_path / "c")
        client.load_checkpoint(tmp_path / "c")
        again = client.get_meta(["x"], 2, "p", task_name="t", sampling_config=asks)
        assert again.global_indexes == first.global_indexes


def test_a_checkpoint_brings_no_pickles_unless_they_are_allowed(mark: Path, tmp_path: Path) -> None:
    """Our own files, too: what was downloaded or copied is ours as well."""
    with tq.init(**SMALL, allow_pickle=False) as session:
        meta = evil_rows(session.client)
        session.client.save_checkpoint(tmp_path / "rows")
        session.client.clear_partition("p")
        with pytest.raises(tq.PickleNotAllowedError):  # what a put returns has the tags in it
            session.client.kv_put("k", "q", tag={"t": Evil()})
        session.client.save_checkpoint(tmp_path / "tags")
        session.client.save_controller_checkpoint(tmp_path / "half")
    with tq.init(**SMALL) as session:
        for place in ("rows", "tags"):
            with pytest.raises(tq.PickleNotAllowedError, match="allow_pickle=True"):
                session.client.load_checkpoint(tmp_path / place)
        with pytest.raises(tq.PickleNotAllowedError, match="allow_pickle=True"):
            session.client.load_controller_checkpoint(tmp_path / "half")
        assert session.client.get_partition_list() == []
        session.client.load_checkpoint(tmp_path / "rows", allow_pickle=True)
        assert session.client.get_data(meta, fields=["x"])["x"].tolist() == [0, 1]
    with tq.init(**SMALL, allow_pickle=True) as session:  # said once for all files
        session.client.load_checkpoint(tmp_path / "rows")
        with pytest.raises(tq.PickleNotAllowedError):
            session.client.load_checkpoint(tmp_path / "rows", allow_pickle=False)


@AS_ROOT
def test_another_users_session_is_never_read(mark: Path) -> None:
    """One that is made to look like ours, with a sampler that runs code, or copied from another machine."""

    def plant(connection: Connection) -> None:
        become(OTHER)
        name, description = connection.recv()
        paths = SessionPaths(name, 0)
        for folder in ("", "/index", "/leases"):
            os.mkdir(f"{paths.directory}{folder}")
            os.chmod(f"{paths.directory}{folder}", 0o777)
        Path(paths.lock).touch()
        Path(paths.description).write_text(description)
        connection.send("planted")
        connection.recv()
        os.unlink(paths.description)
        os.unlink(paths.lock)
        for folder in ("/leases", "/index", ""):
            os.rmdir(f"{paths.directory}{folder}")

    process = Forked(plant)
    with tq.init(**SMALL, **{"controller.sampler": OwnSampler()}) as session:
        description = Path(session.attachment.paths.description).read_text()
    name = new_session_name()
    process.say((name, json.dumps({**json.loads(description), "name": name})))
    assert process.hear() == "planted"
    for call in (tq.attach, lambda name: tq.init(session=name, **SMALL)):
        with pytest.raises(tq.UntrustedFileError, match=f"belongs to uid {OTHER}"):
            call(name)
    process.say()
    assert process.join() == 0
    assert left_behind(name) == []


def test_a_session_of_another_machine_is_not_read() -> None:
    def join(connection: Connection) -> None:
        try:
            tq.attach(connection.recv())
        except tq.TransferQueueError as error:
            connection.send((type(error).__name__, str(error)))

    process = Forked(join)
    with tq.init(**SMALL) as session:
        description = Path(session.attachment.paths.description)
        original = description.read_text()
        values = json.loads(original)
        check(values)  # takes the checksum out
        description.write_text(write_checked({**values, "host": "0c5b9f7e-another-machine"}))
        process.say(session.name)
        kind, text = process.hear()
        assert kind == "LayoutMismatchError"
        assert "another machine" in text
        assert process.join() == 0
        description.write_text(original)
