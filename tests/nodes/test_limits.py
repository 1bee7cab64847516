"""`max_bytes` counts payload with its size, on whichever node it lies."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict

from tests.nodes.batches import batch
from tests.nodes.one_process import OneProcess, one_process
from transferqueue import errors
from transferqueue.client.client import TransferQueueClient
from transferqueue.metadata import BatchMeta
from transferqueue.metrics.readings import read

pytestmark = pytest.mark.timeout(60)
# So that blocks are whole pages: smaller ones may be padded by what was reserved ahead.
UNIT = 64 * 1024


def rows(count: int, nbytes: int = UNIT) -> TensorDict:
    return TensorDict({"x": torch.arange(count * nbytes // 8).reshape(count, -1)}, [count])


def held(cluster: OneProcess, partition: str) -> int:
    """By limits, the same on every node."""
    [found] = {node.client.get_limits(partition).live_bytes for node in cluster.at}
    return found


def history(client: TransferQueueClient, partition: str) -> None:
    """Puts, outputs, overwrites, keys, rows in place, clears."""
    meta = client.put(batch(64), partition_id=partition)
    meta = client.put(TensorDict({"y": torch.zeros(64, 300)}, [64]), metadata=meta)
    client.put(TensorDict({"y": torch.ones(16, 300)}, [16]), metadata=meta.select_samples(list(range(8, 24))))
    client.kv_batch_put([f"k{row}" for row in range(10)], partition, rows(10))
    client.kv_batch_put(["k3", "new"], partition, rows(2, 3 * UNIT))
    with client.alloc({"z": ((1000,), torch.float32)}, partition_id=partition, batch_size=30) as allocation:
        allocation.data["z"].fill_(1)
    client.clear_samples(meta.select_samples([0, 1, 2, 9, 40]))
    client.kv_clear(["k0", "new"], partition)


def test_the_same_rows_count_the_same_wherever_they_were_put(cluster: OneProcess, p: str) -> None:
    for node, partition in ((0, p), (1, f"{p}-away"), (2, f"{p}-far")):
        cluster.at[0].client.place_partition(partition)
        history(cluster.at[node].client, partition)
        listed = {row["name"]: row for row in cluster.at[0].store.partition_stats()}
        assert listed[partition]["live_bytes"] == held(cluster, partition)
    assert held(cluster, p) > 11 * UNIT
    assert held(cluster, p) == held(cluster, f"{p}-away") == held(cluster, f"{p}-far")
    before = cluster.at[0].store.stats()["live_bytes"]
    cluster.at[0].client.clear_partition(f"{p}-far")
    freed = before - cluster.at[0].store.stats()["live_bytes"]
    assert 0 < freed < UNIT // 4, "the node's own figures are of what lies on it"
    cluster.at[0].client.clear_partition(f"{p}-away")


def test_refused_with_the_figures_of_one_machine(cluster: OneProcess, p: str) -> None:
    cluster.at[2].client.set_limits(p, max_bytes=10 * UNIT, when_exceeded="raise")
    cluster.at[1].client.put(rows(6), partition_id=p)
    with pytest.raises(errors.LimitExceededError) as info:
        cluster.at[2].client.put(rows(5), partition_id=p)
    error = info.value
    assert (error.limit, error.cap, error.never) == ("max_bytes", 10 * UNIT, False)
    assert (error.there, error.wanted) == (6 * UNIT, 5 * UNIT)
    with pytest.raises(errors.LimitExceededError) as info:
        cluster.at[1].client.put(rows(11), partition_id=p)
    assert info.value.never
    # In place it is found at the commit.
    allocation = cluster.at[1].client.alloc({"x": ((UNIT // 8,), torch.int64)}, partition_id=p, batch_size=5)
    with pytest.raises(errors.LimitExceededError):
        allocation.commit()
    allocation.abort()
    cluster.at[2].client.put(rows(4), partition_id=p)
    assert held(cluster, p) == 10 * UNIT
    assert cluster.at[1].client.stats(p).limits[p].held()["max_bytes"] == (10 * UNIT, 10 * UNIT)
    metrics = read(cluster.at[0].store, session="s", version="1")
    assert dict(metrics.values["transferqueue_partition_live_bytes"])[(p,)] == 10 * UNIT


def test_waits_for_clears(cluster: OneProcess, p: str) -> None:
    cluster.at[0].client.set_limits(p, max_bytes=10 * UNIT)
    first = cluster.at[1].client.put(rows(8), partition_id=p)
    with pytest.raises(errors.LimitTimeoutError):
        cluster.at[2].client.put(rows(4), partition_id=p, timeout=0.05)
    done: list[BatchMeta] = []
    producer = threading.Thread(target=lambda: done.append(cluster.at[2].client.put(rows(4), partition_id=p)))
    producer.start()
    cluster.at[0].client.clear_samples(first.select_samples([0]))
    producer.join(0.2)
    assert producer.is_alive(), "one of eight is gone, and there was room for two"
    cluster.at[0].client.clear_samples(first.select_samples([1, 2]))
    producer.join()
    assert done[0].size == 4
    assert held(cluster, p) == 9 * UNIT


def test_sheds_by_what_rows_hold(cluster: OneProcess, p: str) -> None:
    cluster.at[0].client.set_limits(p, max_bytes=10 * UNIT, when_exceeded="shed")
    first = cluster.at[1].client.put(rows(8), partition_id=p)
    meta = cluster.at[2].client.put(rows(5), partition_id=p)
    assert meta.shed_rows == 3
    left = cluster.at[1].client.get_production_status(["x"], p)[0].tolist()
    assert sorted(left) == sorted([*first.global_indexes[3:], *meta.global_indexes])
    assert held(cluster, p) == 10 * UNIT


def test_moves_at_home_change_nothing(cluster: OneProcess, p: str) -> None:
    metas = [cluster.at[1 + row % 2].client.put(rows(1, UNIT * (1 + row)), partition_id=p) for row in range(6)]
    metas = [
        cluster.at[0].client.put(TensorDict({"y": torch.zeros(1, UNIT // 4)}, [1]), metadata=meta) for meta in metas
    ]
    before = held(cluster, p)
    assert before == (21 + 6) * UNIT
    meta = BatchMeta.concat(metas)
    cluster.at[1].client.coalesce(meta)
    resolved = cluster.at[0].store.resolve(p, indexes=np.array(meta.global_indexes), fields=["y"], lease=False)
    assert len(resolved.pieces(0)) == 1
    assert held(cluster, p) == before
    for row in range(6):
        cluster.at[2].client.clear_samples(meta.select_samples([row]))
        assert held(cluster, p) < before
        before = held(cluster, p)
    assert before == 0


def test_a_checkpoint_brings_them_along(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    pytest.importorskip("xxhash")
    with one_process(2) as cluster:
        at: Any = [node.client for node in cluster.at]
        at[0].place_partition("p")
        meta = at[1].put(rows(8), partition_id="p")
        at[1].put(TensorDict({"y": torch.zeros(8, UNIT // 8)}, [8]), metadata=meta)
        at[0].put(rows(2), partition_id="p")
        at[0].clear_samples(meta.select_samples([5]))
        expected = held(cluster, "p")
        assert expected == 2 * UNIT + 7 * UNIT + 7 * UNIT // 2
        at[0].save_checkpoint(tmp_path / "c")
    for nodes in (1, 3):
        with one_process(nodes) as cluster:
            cluster.at[-1].client.load_checkpoint(tmp_path / "c")
            assert held(cluster, "p") == expected
            cluster.at[0].client.set_limits("p", max_bytes=expected, when_exceeded="raise")
            with pytest.raises(errors.LimitExceededError):
                cluster.at[-1].client.put(rows(1, 64), partition_id="p")
            for node in cluster.at:
                node.store.check()
