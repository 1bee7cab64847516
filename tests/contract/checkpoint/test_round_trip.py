"""What is saved comes back: into the same session, one of another size, another process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict

import transferqueue as tq
from tests.support.nursery import Nursery
from tests.support.sessions import embedded
from tests.support.versioned_rows import rows, versions_of
from transferqueue import BatchMeta, TransferQueueClient

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    """Forked before this process has a session."""
    with Nursery() as found:
        yield found


def everything(client: TransferQueueClient) -> dict[str, Any]:
    """All that a session says about its rows."""
    found: dict[str, Any] = {"keys": client.kv_list()}
    for partition in client.get_partition_list():
        store = client._store
        fields = store.field_names(partition)
        _, indexes, ready, _ = store.production(partition, fields)
        listing = store.list_rows(partition)
        found[partition] = (
            fields,
            indexes.tolist(),
            ready.tolist(),
            listing.keys,
            [bytes(tag) for tag in listing.tags],
        )
    return found


def fill(client: TransferQueueClient) -> dict[str, BatchMeta]:
    """Two partitions: keyed rows of every layout with tags, half consumed; rows without keys, partly produced."""
    client.kv_batch_put(
        ["b", "a", "long " * 200, "d"],
        "keyed",
        rows([0, 1, 2, 3], version=1),
        tags=[{"n": n, "who": ("tuple", n)} for n in range(4)],
    )
    client.kv_batch_put(["only tags"], "keyed", None, tags=[{"x": 1}])
    client.kv_batch_put(["a"], "keyed", rows([1], version=2))  # overwritten: its first cells are dead
    client.kv_clear(["d"], "keyed")
    whole = client.put(rows(range(100, 116), version=3), partition_id="plain")
    half = client.get_meta(["x", "later"], 4, "plain", mode="insert")
    client.put(TensorDict({"x": torch.zeros(4, 2048, dtype=torch.int64)}, [4]), metadata=half)
    taken = client.get_meta(["x", "n"], 8, "plain", task_name="train")
    client.get_meta(["x"], 2, "plain", task_name="eval")
    client.get_meta(["x"], 2, "empty", mode="insert")
    client.clear_samples(client.get_meta(["x"], 0, "empty", mode="force_fetch"))
    return {"whole": whole, "half": half, "taken": taken}


@pytest.mark.parametrize("size", ["32MiB", "256MiB"])
def test_a_restarted_session_of_another_size_has_everything(tmp_path: Path, size: str) -> None:
    with embedded() as session:
        client = session.client
        metas = fill(client)
        before = everything(client)
        marks = client.get_consumption_status("train", "plain")
        assert client.save_checkpoint(tmp_path / "ckpt", metadata={"step": 7, "names": ["ä", None]}) is None
        name = session.name
    assert [entry.name for entry in tmp_path.iterdir()] == ["ckpt"]
    with embedded(**{"storage.size": size}) as session:
        client = session.client
        client.put(rows([5], version=9), partition_id="to be replaced")
        assert client.load_checkpoint(str(tmp_path / "ckpt")) == {"step": 7, "names": ["ä", None]}
        assert everything(client) == before
        assert client.kv_list("keyed")["keyed"]["a"] == {"n": 1, "who": ("tuple", 1)}
        # Metadata made before the save names the session that is gone, and is valid.
        assert metas["whole"].session == name != session.name
        assert versions_of(client.get_data(metas["whole"])) == [(n, 3) for n in range(100, 116)]
        keyed = client.kv_batch_get(["a", "b", "long " * 200], "keyed")
        assert versions_of(keyed) == [(1, 2), (0, 1), (2, 1)]
        for found, expected in zip(client.get_consumption_status("train", "plain"), marks, strict=True):
            assert torch.equal(torch.as_tensor(found), torch.as_tensor(expected))
        rest = client.get_meta(["x", "n"], 8, "plain", task_name="train", partial=True)
        assert set(rest.global_indexes).isdisjoint(metas["taken"].global_indexes)
        assert not client.check_production_status(["x", "later"], "plain")
        # No index that was ever given out comes again.
        fresh = client.put(rows([1], version=1), partition_id="plain")
        highest = max(index for meta in metas.values() for index in meta.global_indexes)
        assert min(fresh.global_indexes) > highest
        # A second generation: rows of the first session, saved by the second.
        client.save_checkpoint(tmp_path / "ckpt")
    with embedded() as session:
        assert session.client.load_checkpoint(tmp_path / "ckpt") is None
        assert versions_of(session.client.get_data(metas["whole"])) == [(n, 3) for n in range(100, 116)]
        stranger = metas["whole"].copy()
        stranger.session = "some-other"
        with pytest.raises(tq.SessionNotFoundError, match="some-other"):
            session.client.get_data(stranger)


def test_rows_half_done_are_found_and_removed_after_a_load(tmp_path: Path) -> None:
    """Field case 60."""
    with embedded() as session:
        client = session.client
        client.kv_batch_put(["p0", "p1"], "p", TensorDict({"prompt": torch.arange(2), "answer": torch.arange(2)}, [2]))
        client.kv_batch_put(["p2", "p3"], "p", TensorDict({"prompt": torch.arange(2)}, [2]))
        client.save_checkpoint(tmp_path / "c")
    with embedded() as session:
        client = session.client
        client.load_checkpoint(tmp_path / "c")
        indexes, status = client.get_production_status(["prompt", "answer"], "p")
        assert status is not None
        undone = [int(index) for index, row in zip(indexes, status.tolist(), strict=True) if row != [1, 1]]
        keys = client.kv_retrieve_keys(undone, "p")
        assert keys == ["p2", "p3"]
        client.kv_clear([key for key in keys if key], "p")
        assert list(client.kv_list("p")["p"]) == ["p0", "p1"]
        assert client.kv_batch_get(["p0", "p1"], "p")["answer"].tolist() == [0, 1]


def test_a_sampler_goes_on_where_it_was(tmp_path: Path) -> None:
    options = {"controller.sampler": tq.GRPOGroupNSampler(2)}
    fetch = {
        "task_name": "t",
        "sampling_config": {"dp_rank": 0, "batch_index": 0, "partition_id": "p", "task_name": "t"},
    }
    with embedded(**options) as session:
        session.client.put(rows(range(8), version=1), partition_id="p")
        first = session.client.get_meta(["n"], 4, "p", **fetch)
        session.client.save_checkpoint(tmp_path / "c")
    with embedded(**options) as session:
        session.client.load_checkpoint(tmp_path / "c")
        again = session.client.get_meta(["n"], 4, "p", **fetch)
        assert list(again.global_indexes) == list(first.global_indexes)  # cached by the sampler, which is saved
        assert session.client.get_data(again)["n"].tolist() == [[index, 1] for index in range(4)]


def test_calls_of_the_module_and_of_asyncio(tmp_path: Path) -> None:
    async def save_and_load() -> Any:
        await tq.async_save_checkpoint(tmp_path / "c", include_storage=False, metadata=[1])
        return await tq.async_load_checkpoint(tmp_path / "c")

    with embedded() as session:
        meta = tq.put(rows([1], version=1), partition_id="p")
        assert asyncio.run(save_and_load()) == [1]
        tq.save_checkpoint(tmp_path / "c")
        assert tq.load_checkpoint(tmp_path / "c") is None
        assert versions_of(session.client.get_data(meta)) == [(1, 1)]


def load_and_read(pipe: Any, directory: str, meta: BatchMeta) -> None:
    with tq.init(**{"storage.size": "16MiB"}) as session:
        session.client.load_checkpoint(directory)
        pipe.send(versions_of(session.client.get_data(meta)))


def test_another_process_loads_it(tmp_path: Path, nursery: Nursery) -> None:
    with embedded() as session:
        meta = session.client.put(rows(range(12), version=4), partition_id="p")
        session.client.save_checkpoint(tmp_path / "c")
        child = nursery.start(load_and_read, str(tmp_path / "c"), meta)
        assert child.receive() == [(n, 4) for n in range(12)]
        assert child.wait() == 0


def test_an_empty_session_and_empty_partitions(tmp_path: Path) -> None:
    with embedded() as session:
        client = session.client
        client.save_checkpoint(tmp_path / "nothing")
        client.kv_put("k", "p", tag={"a": 1})
        client.kv_clear(["k"], "p")
        client.save_checkpoint(tmp_path / "no rows")
        client.load_checkpoint(tmp_path / "nothing")
        assert client.get_partition_list() == []
        client.load_checkpoint(tmp_path / "no rows")
        assert client.kv_list() == {"p": {}}


def test_many_small_blocks(tmp_path: Path) -> None:
    with embedded() as session:
        client = session.client
        metas = [client.put(TensorDict({"x": torch.tensor([i])}, [1]), partition_id="p") for i in range(1500)]
        client.save_checkpoint(tmp_path / "c")
        client.load_checkpoint(tmp_path / "c")
        assert client.get_data(BatchMeta.concat(metas))["x"].tolist() == list(range(1500))
        assert client.stats().pending_bytes == 0


def test_fragments_of_large_fields(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transferqueue.checkpoint import payload

    monkeypatch.setattr(payload, "FRAGMENT_NBYTES", 300 << 10)
    with embedded() as session:
        x = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (2, 1 << 20), dtype=np.uint8))
        meta = session.client.put(TensorDict({"x": x, "y": torch.arange(2)}, [2]), partition_id="p")
        session.client.save_checkpoint(tmp_path / "c")
        session.client.load_checkpoint(tmp_path / "c")
        back = session.client.get_data(meta)
        assert torch.equal(back["x"], x)
        assert back["y"].tolist() == [0, 1]


def test_claimed_rows_are_unconsumed_after_a_load(tmp_path: Path) -> None:
    with embedded() as session:
        client = session.client
        client.put(rows(range(6), 1), partition_id="p")
        first = client.claim("t", "p", fields=["x"], batch_size=2, lease_s=600)
        client.ack(client.claim("t", "p", fields=["x"], batch_size=1, lease_s=600))
        client.save_checkpoint(tmp_path / "c")
        client.load_checkpoint(tmp_path / "c")
        # The claim is one on rows that were replaced.
        with pytest.raises(tq.StaleMetadataError):
            client.ack(first)
        again = client.claim("t", "p", fields=["x"], batch_size=5, lease_s=600)
        assert versions_of(client.get_data(again.meta, fields=["x", "r", "s", "n"], mode="copy")) == [
            (n, 1) for n in (0, 1, 3, 4, 5)
        ]
        client.ack(again)
        assert client.check_consumption_status("t", "p")


def test_rows_consumed_and_cleared_still_count(tmp_path: Path) -> None:
    with embedded() as session:
        client = session.client
        client.put(rows(range(6), 1), partition_id="p")
        client.clear_samples(client.get_meta(["x"], 4, "p", task_name="t"))
        client.save_checkpoint(tmp_path / "c")
        assert client._store.consumed_rows("p", "t") == 4
        client.load_checkpoint(tmp_path / "c")
        assert client._store.consumed_rows("p", "t") == 4
        assert client.get_meta(["x"], 2, "p", task_name="t").size == 2
