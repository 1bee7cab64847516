"""Puts and gets between nodes, without a network in between."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import NonTensorStack, TensorDict

from tests.nodes.batches import batch, payload_rows, same
from tests.nodes.one_process import OneProcess, in_threads
from transferqueue import errors
from transferqueue.metadata import BatchMeta
from transferqueue.nodes.names import ordinal_of
from transferqueue.nodes.transport.protocol import PayloadRequest

pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize("writer", [0, 1])
@pytest.mark.parametrize("reader", [0, 1, 2])
def test_what_is_put_on_one_node_is_read_on_every_other(cluster: OneProcess, p: str, writer: int, reader: int) -> None:
    meta = cluster.at[writer].client.put(batch(), partition_id=p)
    assert meta.session == cluster.name
    assert ordinal_of(meta.global_indexes[0]) == 0, "rows are the home's"
    got = cluster.at[reader].client.get_data(meta)
    same(got, batch())
    assert cluster.at[reader].client.get_data(meta, fields=["x"])["x"].tolist() == batch()["x"].tolist()


def test_a_read_elsewhere_takes_one_round_trip_and_its_bytes_cross_once(cluster: OneProcess, p: str) -> None:
    meta = cluster.at[1].client.put(batch(64), partition_id=p)
    reader = cluster.at[2].client
    reader.get_data(meta, fields=["x"])
    cluster.calls.clear()
    before = cluster.pulled_nbytes
    got, report = reader.get_data_with_report(meta, fields=["x", "j"])
    assert cluster.calls == [(0, "rows.locate")]
    wire = cluster.pulled_nbytes - before
    assert wire == report.bytes_pulled == sum(4 * (1 + row % 3) for row in range(64)), "x was here already"
    before = cluster.pulled_nbytes
    again, report = cluster.at[2].new_client(cluster).get_data_with_report(meta, fields=["x", "j"])
    assert cluster.pulled_nbytes == before
    assert report.bytes_pulled == 0
    same(got, again)


def test_a_put_elsewhere_takes_one_round_trip(cluster: OneProcess, p: str) -> None:
    writer = cluster.at[1].client
    writer.put(batch(), partition_id=p)
    cluster.calls.clear()
    writer.put(batch(100), partition_id=p)
    writer.kv_batch_put([f"k{row}" for row in range(4)], p, batch(), tags=[{"n": row} for row in range(4)])
    assert cluster.calls == [(0, "rows.publish")] * 2


def test_fields_that_several_nodes_put_on_the_same_rows(cluster: OneProcess, p: str) -> None:
    meta = cluster.at[1].client.put(batch().select("x"), partition_id=p)
    meta = cluster.at[2].client.put(batch().select("j"), metadata=meta)
    meta = cluster.at[0].client.put(batch().select("s"), metadata=meta)
    for node in cluster.at:
        same(node.client.get_data(meta), batch())
        assert list(node.client.get_data(meta, fields=["s", "x"]).keys()) == ["s", "x"]


def test_rows_of_one_field_from_several_nodes_and_the_home(cluster: OneProcess, p: str) -> None:
    metas = [cluster.at[ordinal].client.put(batch(3, 10 * ordinal), partition_id=p) for ordinal in (1, 0, 2)]
    meta = BatchMeta.concat(metas)
    meta.reorder([8, 3, 0, 7, 4, 1, 6, 5, 2])
    expected = torch.cat([batch(3, 10)["x"], batch(3, 0)["x"], batch(3, 20)["x"]])[[8, 3, 0, 7, 4, 1, 6, 5, 2]]
    for node in cluster.at:
        got = node.client.get_data(meta)
        assert torch.equal(got["x"], expected)
        assert got["s"][0] == "row 22"
        assert len(got["j"].unbind()) == 9


def test_rows_that_differ_in_type(cluster: OneProcess, p: str) -> None:
    first = cluster.at[1].client.put(TensorDict({"x": torch.zeros(2, 3)}, [2]), partition_id=p)
    second = cluster.at[2].client.put(TensorDict({"x": torch.ones(2, 5)}, [2]), partition_id=p)
    meta = BatchMeta.concat([first, second], validate=False)
    for node in cluster.at:
        rows = node.client.get_data(meta, fields=["x"])["x"].unbind()
        assert [tuple(row.shape) for row in rows] == [(3,), (3,), (5,), (5,)]


def test_views_are_views_and_private(cluster: OneProcess, p: str) -> None:
    data = TensorDict({"big": torch.arange(100_000).reshape(100, 1000)}, [100])
    meta = cluster.at[1].client.put(data, partition_id=p)
    reader = cluster.at[2].client
    got, report = reader.get_data_with_report(meta)
    assert report.bytes_viewed == 800_000
    assert report.bytes_copied == 0
    got["big"].zero_()
    assert torch.equal(reader.get_data(meta)["big"], data["big"])
    scattered = meta.select_samples([5, 3, 50])
    assert torch.equal(reader.get_data(scattered)["big"], data["big"][[5, 3, 50]])


def test_in_place(cluster: OneProcess, p: str) -> None:
    writer = cluster.at[1].client
    with writer.alloc({"y": ((4,), torch.float32)}, partition_id=p, batch_size=3) as allocation:
        allocation.data["y"].fill_(7.0)
    for node in cluster.at:
        assert node.client.get_data(allocation.meta)["y"].tolist() == [[7.0] * 4] * 3
    with writer.alloc({"z": ((), torch.int64)}, partition_id=p, metadata=allocation.meta) as more:
        more.data["z"].copy_(torch.arange(3))
    assert cluster.at[2].client.get_data(more.meta, fields=["z"])["z"].tolist() == [0, 1, 2]
    with writer.alloc({"z": ((), torch.int64)}, partition_id=p, keys=["a"]) as keyed:
        keyed.data["z"].fill_(5)
    assert keyed.meta.fields == ["z"]
    assert cluster.at[0].client.kv_batch_get("a", p)["z"].tolist() == [5]


def test_overwritten_rows_are_read_whole_and_never_half(cluster: OneProcess, p: str) -> None:
    def rows(version: int) -> TensorDict:
        return TensorDict({name: torch.full((8, 50), version) for name in ("a", "b")}, [8])

    keys = [f"k{row}" for row in range(8)]
    cluster.at[1].client.kv_batch_put(keys, p, rows(0))
    stop = threading.Event()

    def write(ordinal: int) -> None:
        version = ordinal
        while not stop.is_set():
            cluster.at[ordinal].client.kv_batch_put(keys, p, rows(version))
            version += 3

    seen = []

    def read(ordinal: int) -> None:
        until_s = time.monotonic() + 60  # far more than it takes to be overwritten a few times
        reads = 0
        try:
            while reads < 40 or (len(set(seen)) < 4 and time.monotonic() < until_s):
                reads += 1
                got = cluster.at[ordinal].client.kv_batch_get(keys, p)
                values = set(got["a"].unique().tolist()) | set(got["b"].unique().tolist())
                assert len(values) == 1, values
                seen.append(values.pop())
        finally:
            stop.set()

    in_threads([lambda: write(1), lambda: write(2), lambda: read(0), lambda: read(2), lambda: read(1)])
    assert len(set(seen)) > 3


def test_payload_that_is_cleared_between_locate_and_pull_is_located_again(cluster: OneProcess, p: str) -> None:
    keys = ["a", "b"]
    cluster.at[1].client.kv_batch_put(keys, p, TensorDict({"x": torch.zeros(2, 3)}, [2]))
    pulls = []

    def overwrite(request: Any) -> None:
        pulls.append(request)
        if len(pulls) == 1:
            cluster.at[1].client.kv_batch_put(keys, p, TensorDict({"x": torch.ones(2, 3)}, [2]))
            cluster.settle()

    cluster.before_pull = overwrite
    try:
        got = cluster.at[2].client.kv_batch_get(keys, p)
    finally:
        cluster.before_pull = lambda request: None
    assert len(pulls) == 2
    assert got["x"].tolist() == [[1.0] * 3] * 2


def test_readers_of_one_node_share_one_pull(cluster: OneProcess, p: str) -> None:
    data = TensorDict({"x": torch.arange(40_000).reshape(100, 400)}, [100])
    meta = cluster.at[1].client.put(data, partition_id=p)
    cluster.before_pull = lambda request: time.sleep(0.05)
    before = cluster.pulled_nbytes
    clients = [cluster.at[2].new_client(cluster) for _ in range(4)]
    try:
        results = in_threads([lambda client=client: client.get_data(meta) for client in clients])
    finally:
        cluster.before_pull = lambda request: None
    assert cluster.pulled_nbytes - before == 320_000
    assert all(torch.equal(got["x"], data["x"]) for got in results)


def test_a_puller_that_fails_leaves_nothing_and_the_next_one_pulls(cluster: OneProcess, p: str) -> None:
    meta = cluster.at[1].client.put(batch(), partition_id=p)
    before = cluster.at[2].store.stats()["pending_bytes"]

    def fail(request: Any) -> None:
        raise OSError("the connection broke")

    cluster.before_pull = fail
    try:
        with pytest.raises(OSError, match="broke"):
            cluster.at[2].client.get_data(meta)
    finally:
        cluster.before_pull = lambda request: None
    assert cluster.at[2].store.stats()["pending_bytes"] == before
    same(cluster.at[2].client.get_data(meta), batch())


def test_nothing_is_left_after_clears(cluster: OneProcess, p: str) -> None:
    cluster.settle()
    before = [node.store.stats()["used_bytes"] for node in cluster.at]
    meta = cluster.at[1].client.put(batch(50), partition_id=p)
    native = cluster.at[0].client.put(batch(50), partition_id=p)
    keyed = cluster.at[2].client.kv_batch_put([f"k{row}" for row in range(50)], p, batch(50))
    for node in cluster.at:
        node.client.get_data(meta)
        node.client.get_data(native)
        node.client.kv_batch_get_by_meta(keyed)
    cluster.settle()
    same(cluster.at[2].client.get_data(meta), batch(50))
    cluster.at[2].client.clear_samples(meta.select_samples(list(range(25))))
    cluster.settle()
    with pytest.raises(errors.StaleMetadataError):
        cluster.at[2].client.get_data(meta)
    assert cluster.at[1].client.get_data(meta.select_samples(list(range(25, 50))))["x"].shape == (25, 3)
    cluster.at[1].client.clear_partition(p)
    cluster.settle()
    assert [node.store.stats()["used_bytes"] for node in cluster.at] == before
    assert payload_rows(cluster, 1) == payload_rows(cluster, 2) == payload_rows(cluster, 0) == 0


def test_a_put_that_the_home_refuses_leaves_nothing(cluster: OneProcess, p: str) -> None:
    writer = cluster.at[1].client
    meta = writer.put(batch(), partition_id=p)
    cluster.at[0].client.clear_samples(meta)
    cluster.settle()
    before = cluster.at[1].store.stats()["used_bytes"]
    with pytest.raises(errors.StaleMetadataError):
        writer.put(batch().select("x"), metadata=meta)
    cluster.at[1].store.reclaim()
    assert cluster.at[1].store.stats()["used_bytes"] == before


def test_coalesced_at_home_and_read_elsewhere(cluster: OneProcess, p: str) -> None:
    metas = [cluster.at[1 + row % 2].client.put(batch(1, row), partition_id=p) for row in range(6)]
    meta = BatchMeta.concat(metas)
    cluster.at[1].client.coalesce(meta)
    resolved = cluster.at[0].store.resolve(p, indexes=np.array(meta.global_indexes), fields=["x"], lease=False)
    assert len(resolved.pieces(0)) == 1
    got = cluster.at[0].client.get_data(meta)
    assert got["s"] == [f"row {row}" for row in range(6)]
    assert cluster.at[2].client.get_data(meta)["s"] == [f"row {row}" for row in range(6)]


def test_fields_of_several_puts_that_are_moved_together_keep_their_own_payload(cluster: OneProcess, p: str) -> None:
    metas = []
    for row in range(6):
        meta = cluster.at[row % 3].client.put(batch(1, row).select("x"), partition_id=p)
        meta = cluster.at[(row + 1) % 3].client.put(batch(1, row).select("j", "s"), metadata=meta)
        metas.append(cluster.at[2].client.put(TensorDict({"y": torch.tensor([row])}, [1]), metadata=meta))
    meta = BatchMeta.concat(metas)
    cluster.at[1].client.coalesce(meta)
    for node in cluster.at:
        got = node.client.get_data(meta)
        assert torch.equal(got["x"], torch.cat([batch(1, row)["x"] for row in range(6)]))
        assert got["s"] == [f"row {row}" for row in range(6)]
        assert got["y"].tolist() == list(range(6))
    cluster.settle()
    cluster.at[0].client.clear_samples(meta[:2])
    cluster.settle()
    for node in cluster.at:
        again = node.new_client(cluster).get_data(meta[2:])
        assert again["y"].tolist() == [2, 3, 4, 5]
        assert again["s"] == [f"row {row}" for row in range(2, 6)]
    cluster.at[1].client.clear_partition(p)
    cluster.settle()
    assert [payload_rows(cluster, ordinal) for ordinal in range(3)] == [0, 0, 0]


def test_pickled_rows_of_another_node_are_refused_unless_allowed(cluster: OneProcess, p: str) -> None:
    rows = NonTensorStack(*[complex(row, 1) for row in range(2)])
    meta = cluster.at[1].client.put(TensorDict({"o": rows}, [2]), partition_id=p)
    assert cluster.at[1].client.get_data(meta)["o"] == [complex(0, 1), complex(1, 1)]
    for ordinal in (0, 2):
        with pytest.raises(errors.PickleNotAllowedError):
            list(cluster.at[ordinal].client.get_data(meta)["o"])


def test_the_rest_of_a_block_comes_with_most_of_it_when_that_is_scattered(cluster: OneProcess, p: str) -> None:
    at = [node.client for node in cluster.at]
    row_nbytes = 8 * 5
    for producer in (1, 0):  # payload away from the home, and at it
        meta = at[producer].put(
            TensorDict({"x": torch.arange(32)[:, None].repeat(1, 5), "y": torch.arange(32.0)}, [32]), partition_id=p
        )
        at[0].clear_samples(meta.select_samples([3]))
        scattered = [row for row in range(31, -1, -1) if row % 5 and row != 3]
        before = cluster.pulled_nbytes
        found = at[2].get_data(meta.select_samples(scattered), fields=["x"])["x"]
        assert found[:, 0].tolist() == scattered
        assert cluster.pulled_nbytes - before == 31 * row_nbytes  # all but the one that is gone
        rest = [row for row in range(32) if row % 5 == 0]
        before = cluster.pulled_nbytes
        assert at[2].get_data(meta.select_samples(rest), fields=["x"])["x"][:, 0].tolist() == rest
        assert cluster.pulled_nbytes == before
        # A range is no more than its rows, and so is what is less than most.
        for few, nbytes in ((list(range(4, 31)), 27 * 4), (list(range(0, 32, 2)), 2 * 4)):
            before = cluster.pulled_nbytes
            assert at[2].get_data(meta.select_samples(few), fields=["y"])["y"].tolist() == few
            assert cluster.pulled_nbytes - before == nbytes


def test_what_may_come_with_rows_is_no_condition_of_reading_them(cluster: OneProcess, p: str) -> None:
    at = [node.client for node in cluster.at]
    meta = at[1].put(TensorDict({"x": torch.arange(32)}, [32]), partition_id=p)
    scattered = [row for row in range(32) if row % 5]
    seen: list[int] = []

    def clear_the_rest(request: PayloadRequest) -> None:
        seen.append(len(request.rows))
        if len(seen) == 1:
            at[0].clear_samples(meta.select_samples([row for row in range(32) if row % 5 == 0]))
            cluster.at[0].home.upkeep.release()

    cluster.before_pull = clear_the_rest
    try:
        assert at[2].get_data(meta.select_samples(scattered), fields=["x"])["x"].tolist() == scattered
    finally:
        cluster.before_pull = lambda request: None
    assert seen == [32, 25]
