"""Checkpoints of several nodes, into as many, more, fewer nodes, and one machine; and of one machine into several."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from tensordict import TensorDict

from tests.nodes.one_process import OneProcess, one_process
from tests.support.sessions import wait_for
from transferqueue import _native
from transferqueue.checkpoint import node_save
from transferqueue.checkpoint.libraries import new_checksum
from transferqueue.checkpoint.manifest import FILES, MANIFEST, FileFacts, parse_manifest
from transferqueue.client.client import TransferQueueClient
from transferqueue.config import build_config
from transferqueue.errors import (
    CorruptCheckpointError,
    DataLostError,
    NodeUnreachableError,
    PickleNotAllowedError,
    StorageFullError,
)
from transferqueue.node_service import checkpoint_calls
from transferqueue.node_service.members import Members
from transferqueue.nodes.directory.service import DirectoryService
from transferqueue.nodes.rpc_server import Call
from transferqueue.service import StorageService
from transferqueue.storage.creation import create_session
from transferqueue.storage.names import new_session_name

pa = pytest.importorskip("pyarrow")
pytest.importorskip("xxhash")
pytestmark = pytest.mark.timeout(60)


def _rows(first: int, count: int) -> TensorDict:
    return TensorDict(
        {
            "x": torch.arange(first, first + count),
            "ids": torch.nested.nested_tensor(
                [torch.full((1 + n % 3,), first + n) for n in range(count)], layout=torch.jagged
            ),
            "name": [f"row {first + n}" for n in range(count)],
        },
        batch_size=[count],
    )


class Filled:
    """Partitions of several homes, with rows that were put on all nodes."""

    def __init__(self, cluster: OneProcess) -> None:
        at = [node.client for node in cluster.at]
        at[0].place_partition("p")
        at[-1].place_partition("q")
        # p: rows of all nodes; of some one node put the one field and another the other; some were cleared.
        metas = [client.put(_rows(10 * number, 10), partition_id="p") for number, client in enumerate(at)]
        at[0].clear_samples(metas[1].select_samples([2, 3]))
        self.meta = metas[0].concat(metas)
        self.meta = self.meta.select_samples([n for n in range(self.meta.size) if n not in (12, 13)])
        at[1].put(TensorDict({"reward": 0.5 * torch.arange(5)}, [5]), metadata=metas[0].select_samples(list(range(5))))
        self.rewarded = metas[0].select_samples(list(range(5)))
        # q: keys and tags, and rows put at home.
        at[0].kv_batch_put(["a", "b"], "q", _rows(100, 2), tags=[{"n": 1}, {"n": 2}])
        at[-1].kv_batch_put(["c"], "q", _rows(102, 1), tags=[{"n": 3}])
        at[1].get_meta(["x"], 4, "p", task_name="t", mode="fetch")
        at[0].place_partition("empty")
        at[0].put(_rows(0, 1), partition_id="empty")
        at[0].clear_samples(at[0].get_meta(["x"], 1, "empty", task_name="t"))

    def check(self, client: TransferQueueClient) -> None:
        expected = [n for n in range(10 * (self.meta.size // 10 + 1)) if n not in (12, 13)][: self.meta.size]
        found = client.get_data(self.meta, fields=["x", "ids", "name"])
        assert found["x"].tolist() == expected
        assert [row.tolist() for row in found["ids"].unbind()] == [[n] * (1 + n % 10 % 3) for n in expected]
        assert list(found["name"]) == [f"row {n}" for n in expected]
        rewarded = client.get_data(self.rewarded, fields=["reward", "x"])
        assert rewarded["reward"].tolist() == [0.0, 0.5, 1.0, 1.5, 2.0]
        assert rewarded["x"].tolist() == [0, 1, 2, 3, 4]
        assert client.kv_list("q") == {"q": {"a": {"n": 1}, "b": {"n": 2}, "c": {"n": 3}}}
        assert client.kv_batch_get(["c", "a"], "q", select_fields=["x"])["x"].tolist() == [102, 100]
        indexes, consumed = client.get_consumption_status("t", "p")
        assert len(indexes) == self.meta.size
        assert int(consumed.sum()) == 4
        assert set(client.get_partition_list()) == {"p", "q", "empty"}


@pytest.fixture(scope="module")
def three() -> Iterator[OneProcess]:
    with one_process(3) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def saved(three: OneProcess, tmp_path_factory: pytest.TempPathFactory) -> tuple[Filled, Path]:
    filled = Filled(three)
    directory = tmp_path_factory.mktemp("checkpoints") / "step-1"
    three.at[1].client.save_checkpoint(directory, metadata={"step": 1})
    return filled, directory


@contextlib.contextmanager
def _machine(**overrides: Any) -> Iterator[TransferQueueClient]:
    config = build_config({"storage.size": "32MiB", **overrides})
    attachment = create_session(new_session_name(), config)
    assert attachment is not None
    service = StorageService(attachment.paths, attachment.store, config)
    client = TransferQueueClient(attachment, config, service)
    try:
        yield client
    finally:
        client.close()
        service.stop()
        attachment.end()


def test_a_save_changes_nothing_and_is_whole(saved: tuple[Filled, Path], three: OneProcess) -> None:
    filled, directory = saved
    names = sorted(path.name for path in directory.iterdir())
    assert "metadata.json" in names
    assert "saving" not in names
    assert {name.partition("-")[0] for name in names if name != "metadata.json"} == {"n0", "n1", "n2"}
    assert [path for path in directory.parent.iterdir() if path != directory] == []
    for node in three.at:
        filled.check(node.client)
    three.at[0].client.save_checkpoint(directory, metadata={"step": 1})  # in the place of the first


@pytest.mark.parametrize("nodes", [1, 2, 3, 4])
def test_into_another_number_of_nodes(saved: tuple[Filled, Path], nodes: int, tmp_path: Path) -> None:
    filled, directory = saved
    with one_process(nodes) as cluster:
        last = cluster.at[-1].client
        last.put(_rows(500, 3), partition_id="old")
        assert last.load_checkpoint(directory) == {"step": 1}
        for node in cluster.at:
            filled.check(node.client)
        assert cluster.spent >= 2
        # New rows get other indexes, wherever they are put, and what is cleared goes everywhere.
        for node in cluster.at:
            more = node.client.put(_rows(700, 2), partition_id="p")
            assert not set(more.global_indexes) & set(filled.meta.global_indexes)
            node.client.clear_samples(more)
        # What was loaded can be saved and loaded.
        last.save_checkpoint(tmp_path / "again", metadata=[2])
        assert cluster.at[0].client.load_checkpoint(tmp_path / "again") == [2]
        for node in cluster.at:
            filled.check(node.client)
        cluster.settle()
        for name in ("p", "q", "empty"):
            last.clear_partition(name)
        cluster.settle()
        for node in cluster.at:
            assert node.store.stats()["live_bytes"] == 0


def test_into_the_same_nodes_again(saved: tuple[Filled, Path], three: OneProcess) -> None:
    filled, directory = saved
    more = three.at[1].client.put(_rows(300, 2), partition_id="p")
    held = three.at[1].client.get_data(more, fields=["x"])["x"]
    three.at[2].client.load_checkpoint(directory)
    assert held.tolist() == [300, 301]
    for node in three.at:
        filled.check(node.client)
    assert three.at[0].client.get_production_status(["x"], "p")[0].tolist() == sorted(filled.meta.global_indexes)
    three.settle()
    for node in three.at:
        filled.check(node.client)


def test_into_one_machine_and_back(saved: tuple[Filled, Path], tmp_path: Path) -> None:
    filled, directory = saved
    with _machine() as client:
        assert client.load_checkpoint(directory) == {"step": 1}
        filled.check(client)
        more = client.put(_rows(700, 2), partition_id="p")
        assert not set(more.global_indexes) & set(filled.meta.global_indexes)
        client.clear_samples(more)
        client.save_checkpoint(tmp_path / "machine", metadata="m")
        client.load_checkpoint(tmp_path / "machine")
        filled.check(client)
    with one_process(2) as cluster:
        assert cluster.at[1].client.load_checkpoint(tmp_path / "machine") == "m"
        assert cluster.home_of("p", None) == 1
        for node in cluster.at:
            filled.check(node.client)
        for node in cluster.at:
            more = node.client.put(_rows(700, 2), partition_id="new")
            assert not set(more.global_indexes) & set(filled.meta.global_indexes)
        assert cluster.spent == 2  # rows of node 2 are in it, and no new node may give them out


def test_damage_is_found_before_anything_changes(saved: tuple[Filled, Path], tmp_path: Path) -> None:
    _, directory = saved
    names = sorted(path.name for path in directory.iterdir() if path.name != "metadata.json")
    with one_process(2) as cluster:
        client = cluster.at[0].client
        kept = client.put(_rows(0, 3), partition_id="kept")
        rng = np.random.default_rng(7)
        for name in rng.choice(names, 6, replace=False).tolist():
            broken = tmp_path / "broken"
            broken.mkdir()
            for path in directory.iterdir():
                (broken / path.name).write_bytes(path.read_bytes())
            raw = bytearray((broken / name).read_bytes())
            raw[int(rng.integers(len(raw)))] ^= 0x40
            (broken / name).write_bytes(raw)
            for load in (client.load_checkpoint, _load_on_a_machine):
                with pytest.raises(CorruptCheckpointError, match=name):
                    load(broken)
            (broken / name).unlink()
            with pytest.raises(FileNotFoundError, match=name):
                client.load_checkpoint(broken)
            for path in broken.iterdir():
                path.unlink()
            broken.rmdir()
        assert client.get_data(kept, fields=["x"])["x"].tolist() == [0, 1, 2]
        assert set(client.get_partition_list()) == {"kept"} | {"p", "q", "empty"} & set(client.get_partition_list())
        for node in cluster.at:
            assert not node.home._checkpoints._shares


def test_tables_that_contradict_each_other_change_no_node(saved: tuple[Filled, Path], tmp_path: Path) -> None:
    """Their checksums are right: somebody wrote them so."""
    _, directory = saved
    broken = tmp_path / "broken"
    shutil.copytree(directory, broken)
    name = "n2-payload-fields.arrow"
    table = pa.ipc.open_file(str(broken / name)).read_all()
    beyond = pa.array([1 << 20] * table.num_rows)
    table = table.set_column(table.schema.get_field_index("data_offset"), "data_offset", beyond)
    with pa.ipc.new_file(str(broken / name), table.schema) as writer:
        writer.write_table(table)
    raw = (broken / name).read_bytes()
    checksum = new_checksum()
    checksum.update(raw)
    manifest = parse_manifest((broken / MANIFEST).read_bytes(), MANIFEST, FILES)
    files = {**manifest.files, name: FileFacts(len(raw), checksum.hexdigest())}
    (broken / MANIFEST).write_bytes(msgspec.structs.replace(manifest, files=files).encode())
    with one_process(2) as cluster:
        kept = cluster.at[0].client.put(_rows(0, 3), partition_id="kept")
        with pytest.raises(CorruptCheckpointError, match="outside the block"):
            cluster.at[0].client.load_checkpoint(broken)
        for node in cluster.at:
            assert node.client.get_partition_list() == ["kept"]
            assert node.client.get_data(kept, fields=["x"])["x"].tolist() == [0, 1, 2]
            assert node.store.stats()["pending_bytes"] == 0


def _load_on_a_machine(directory: Path) -> None:
    with _machine() as client:
        client.load_checkpoint(directory)


def test_no_room_on_one_node_leaves_all_as_they_were(tmp_path: Path) -> None:
    with one_process(2) as cluster:
        big = TensorDict({"x": torch.zeros(20 << 20, dtype=torch.uint8).view(4, -1)}, [4])
        cluster.at[0].client.place_partition("big")
        cluster.at[1].client.put(big, partition_id="big")
        cluster.at[0].client.save_checkpoint(tmp_path / "big")
        kept = cluster.at[0].client.put(_rows(0, 3), partition_id="kept")
        with pytest.raises(StorageFullError):
            cluster.at[0].client.load_checkpoint(tmp_path / "big")  # node 1 holds 20 of 32 MiB already
        for node in cluster.at:
            assert node.client.get_data(kept, fields=["x"])["x"].tolist() == [0, 1, 2]
            assert node.store.stats()["pending_bytes"] == 0
        cluster.at[1].client.clear_partition("big")
        cluster.settle()
        cluster.at[0].client.load_checkpoint(tmp_path / "big")
        assert set(cluster.at[1].client.get_partition_list()) == {"big"}


def test_pickles_come_only_where_nodes_allow_them(tmp_path: Path) -> None:
    with one_process(2) as cluster:
        client = cluster.at[0].client
        client.kv_batch_put(["k"], "p", TensorDict({"x": torch.zeros(1)}, [1]), tags=[{"o": complex(1, 2)}])
        client.save_checkpoint(tmp_path / "pickled")
        for asked in (None, True):
            with pytest.raises(PickleNotAllowedError):
                client.load_checkpoint(tmp_path / "pickled", allow_pickle=asked)
    with one_process(2, allow_pickle=True) as cluster:
        client = cluster.at[0].client
        client.load_checkpoint(tmp_path / "pickled")
        assert client.kv_list("p")["p"]["k"] == {"o": complex(1, 2)}


def test_what_nobody_leads_any_more_ends(three: OneProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_calls, "IDLE_S", 0.2)
    (tmp_path / "saving").write_text("one")
    node = three.at[1]
    args = {"id": "one", "directory": str(tmp_path)}
    three.call(1, "checkpoint.begin_save", args, until_s=None)
    names = three.call(1, "checkpoint.look", args, until_s=None)
    held = node.home._payload.publish(1, *_block(node.store), None).names
    node.home.upkeep.discards.discard(held)
    assert node.home._payload.have(held).all()
    wait_for(lambda: not node.home._checkpoints._shares, 10.0, "the end of the save")
    wait_for(lambda: not node.home._payload.have(held).any(), 10.0, "what was held for it")
    with pytest.raises(NodeUnreachableError, match="knows nothing"):
        three.call(1, "checkpoint.write", {**args, "names": names}, until_s=None)
    monkeypatch.setattr(node_save, "_SEEN_WITHIN_S", 0.1)
    with pytest.raises(FileNotFoundError, match="share"):
        three.call(1, "checkpoint.begin_save", {**args, "id": "two"}, until_s=None)


def _block(store: Any) -> tuple[Any, list[Any]]:
    reservation = store.reserve(64, None)
    return reservation, [_native.FieldLayout("x", _native.DENSE, 0, 8, 8, 0, b"")]


def test_a_new_node_gets_no_ordinal_whose_rows_were_loaded() -> None:
    directory = DirectoryService(lost_after_s=10.0)
    members = Members(directory)
    assert members.reserve() == 0
    handlers = directory.handlers()
    handlers["directory.spend"](Call("directory.spend", {"ordinal": 4}, b"", None, ""))
    assert members.reserve() == 5
    with pytest.raises(ValueError, match="ordinal"):
        handlers["directory.spend"](Call("directory.spend", {"ordinal": 1 << 12}, b"", None, ""))


def test_what_was_lost_with_a_node_is_said(tmp_path: Path) -> None:
    with one_process(3) as cluster:
        at = [node.client for node in cluster.at]
        at[0].place_partition("p")
        meta = at[1].put(_rows(0, 4), partition_id="p")
        other = at[2].put(_rows(4, 4), partition_id="p")
        at[0].get_data(other, fields=["x", "ids", "name"])  # node 0 has a copy
        at[0].save_checkpoint(tmp_path / "whole")
        cluster.lost.add(2)
        at[0].save_checkpoint(tmp_path / "without-2")
        cluster.lost.add(1)
        with pytest.raises(DataLostError) as caught:
            at[0].save_checkpoint(tmp_path / "without-2")
        assert caught.value.partition_id == "p"
        assert set(caught.value.rows) == set(meta.global_indexes)
        cluster.lost = {2}
        at[1].place_partition("of 1")
        cluster.lost = {1, 2}
        with pytest.raises(DataLostError) as caught:
            at[0].save_checkpoint(tmp_path / "without-2")
        assert caught.value.partition_id == "of 1"
        at[0].clear_partition("of 1")  # gives it up
        at[0].clear_partition("p")
        at[0].save_checkpoint(tmp_path / "nothing")
        # All of it is in the checkpoint of before, on the node that is left.
        at[0].load_checkpoint(tmp_path / "without-2")
        assert at[0].get_data(meta.concat([meta, other]), fields=["x"])["x"].tolist() == list(range(8))
        cluster.lost = set()


def test_partitions_of_a_lost_home_come_back_elsewhere(tmp_path: Path) -> None:
    with one_process(3) as cluster:
        at = [node.client for node in cluster.at]
        at[2].place_partition("p")
        meta = at[1].put(_rows(0, 4), partition_id="p")
        assert at[0].get_data(meta, fields=["x"])["x"].tolist() == [0, 1, 2, 3]
        at[0].save_checkpoint(tmp_path / "whole")
        cluster.lost = {2}
        with pytest.raises(DataLostError):
            at[1].put(_rows(4, 1), partition_id="p")
        at[0].load_checkpoint(tmp_path / "whole")
        assert cluster.home_of("p", None) in (0, 1)
        for client in at[:2]:  # which had learnt of the lost home
            assert client.get_data(meta, fields=["x"])["x"].tolist() == [0, 1, 2, 3]
            more = client.put(_rows(4, 1), partition_id="p")
            assert client.get_data(more, fields=["x"])["x"].tolist() == [4]
        cluster.lost = set()
