"""Every guarantee of a session between nodes, without a network in between."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import NonTensorStack, TensorDict

from tests.nodes.one_process import OneProcess, in_threads, one_process
from transferqueue import errors
from transferqueue.nodes.names import PAYLOAD, ordinal_of

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def cluster() -> Iterator[OneProcess]:
    with one_process(3) as made:
        yield made


_numbers = iter(range(1000))


@pytest.fixture
def p(cluster: OneProcess) -> Iterator[str]:
    """A partition whose home is node 0."""
    name = f"p{next(_numbers)}"
    cluster.at[0].client.place_partition(name)
    yield name
    for node in cluster.at:
        node.client.clear_partition(name)


def batch(rows: int = 4, start: int = 0) -> TensorDict:
    lengths = [1 + row % 3 for row in range(rows)]
    return TensorDict(
        {
            "x": torch.arange(start, start + rows * 3).reshape(rows, 3),
            "j": torch.nested.nested_tensor(
                [torch.full((n,), float(start + row)) for row, n in enumerate(lengths)], layout=torch.jagged
            ),
            "s": NonTensorStack(*[f"row {start + row}" for row in range(rows)]),
        },
        batch_size=[rows],
    )


def same(left: TensorDict, right: TensorDict) -> None:
    assert sorted(map(str, left.keys())) == sorted(map(str, right.keys()))
    for name in left.keys():
        a, b = left.get(name), right.get(name)
        if isinstance(a, torch.Tensor) and a.is_nested:
            assert a.layout == b.layout
            assert all(torch.equal(x, y) for x, y in zip(a.unbind(), b.unbind(), strict=True))
        elif isinstance(a, torch.Tensor):
            assert torch.equal(a, b)
        else:
            assert a.tolist() == b.tolist()


def payload_rows(cluster: OneProcess, ordinal: int) -> int:
    return len(cluster.at[ordinal].store.production(PAYLOAD, [])[1])


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


def test_keys_and_tags(cluster: OneProcess, p: str) -> None:
    keys = [f"k{row}" for row in range(4)]
    put = cluster.at[1].client.kv_batch_put(keys, p, batch().select("x"), tags=[{"n": row} for row in range(4)])
    assert put.fields == ["x"]
    assert put.tags == [{"n": row} for row in range(4)]
    more = cluster.at[2].client.kv_batch_put(keys[:2], p, batch(2).select("s"), tags=[{"m": 1}, {"m": 2}])
    assert more.fields == ["s", "x"]
    assert more.tags == [{"n": 0, "m": 1}, {"n": 1, "m": 2}]
    for node in cluster.at:
        assert node.client.kv_list(p) == {
            p: {"k0": {"n": 0, "m": 1}, "k1": {"n": 1, "m": 2}, "k2": {"n": 2}, "k3": {"n": 3}}
        }
        assert node.client.kv_list()[p].keys() == set(keys)
        got = node.client.kv_batch_get(keys[::-1], p)
        assert got["x"].tolist() == batch()["x"].flip(0).tolist()
        assert node.client.kv_batch_get(["k1", "k0"], p)["s"] == ["row 1", "row 0"]
        with pytest.raises(errors.KeyNotFoundError):
            node.client.kv_batch_get(["k1", "nosuch"], p)
        skipped = node.client.kv_batch_get(["k1", "nosuch"], p, missing="skip")
        assert skipped.batch_size[0] == 1
        assert node.client.kv_batch_get(["nosuch"], p, missing="skip").batch_size[0] == 0
        with pytest.raises(errors.FieldNotReadyError):
            node.client.kv_batch_get(keys, p, ["s"])
        assert node.client.kv_batch_get_by_meta(put)["x"].tolist() == batch()["x"].tolist()
        found = node.client.kv_retrieve_meta(keys, p)
        assert found.custom_meta[0] == {"n": 0, "m": 1}
        assert node.client.kv_retrieve_keys(found.global_indexes, p) == keys
    tag = cluster.at[2].client.kv_put("k9", p, tag={"only": "tag"})
    assert tag.tags == [{"only": "tag"}]
    cluster.at[1].client.kv_clear(["k9", "k0"], p)
    assert set(cluster.at[2].client.kv_list(p)[p]) == {"k1", "k2", "k3"}


def test_fields_that_several_nodes_put_on_the_same_rows(cluster: OneProcess, p: str) -> None:
    meta = cluster.at[1].client.put(batch().select("x"), partition_id=p)
    meta = cluster.at[2].client.put(batch().select("j"), metadata=meta)
    meta = cluster.at[0].client.put(batch().select("s"), metadata=meta)
    for node in cluster.at:
        same(node.client.get_data(meta), batch())
        assert list(node.client.get_data(meta, fields=["s", "x"]).keys()) == ["s", "x"]


def test_rows_of_one_field_from_several_nodes_and_the_home(cluster: OneProcess, p: str) -> None:
    from transferqueue.metadata import BatchMeta

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
    from transferqueue.metadata import BatchMeta

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


def test_consumption_is_exactly_once_from_all_nodes(cluster: OneProcess, p: str) -> None:
    for ordinal in range(3):
        cluster.at[ordinal].client.put(batch(20, 100 * ordinal), partition_id=p)
    taken: list[list[int]] = []

    def consume(ordinal: int) -> list[int]:
        mine: list[int] = []
        while True:
            meta = cluster.at[ordinal].client.get_meta("x", 5, p, task_name="t", polling_mode=True)
            if not meta.size:
                return mine
            mine += meta.global_indexes

    taken = in_threads([lambda ordinal=ordinal: consume(ordinal) for ordinal in (0, 1, 2, 1, 2)])
    indexes = cluster.at[0].store.production(p, [])[1].tolist()
    assert sorted(number for mine in taken for number in mine) == sorted(indexes)
    for node in cluster.at:
        assert node.client.check_consumption_status("t", p)
        assert node.client.check_production_status(["x", "s"], p)
        _, status = node.client.get_production_status(["x"], p)
        assert status is not None
        assert status.sum() == 60
    cluster.at[2].client.reset_consumption(p, "t")
    assert not cluster.at[1].client.check_consumption_status("t", p)


def test_claims_from_other_nodes(cluster: OneProcess, p: str) -> None:
    cluster.at[2].client.put(batch(6), partition_id=p)
    first = cluster.at[1].client.claim("t", p, fields="x", batch_size=4, lease_s=30)
    assert first.meta.size == 4
    assert cluster.at[1].client.get_data(first.meta, fields=["x"])["x"].tolist() == batch(4)["x"].tolist()
    second = cluster.at[2].client.claim("t", p, fields="x", batch_size=4, lease_s=30, partial=True)
    assert second.meta.size == 2
    began = first.deadline_s
    cluster.at[2].client.extend(first, 100)
    assert first.deadline_s > began + 50
    cluster.at[1].client.ack(first)
    with pytest.raises(errors.StaleMetadataError):
        cluster.at[0].client.ack(first)
    cluster.at[0].client.nack(second)
    third = cluster.at[1].client.claim("t", p, fields="x", batch_size=2, lease_s=0.2)
    assert third.meta.size == 2
    began_s = time.monotonic()
    again = cluster.at[2].client.claim("t", p, fields="x", batch_size=2, lease_s=30, timeout=10)
    assert again.meta.global_indexes == third.meta.global_indexes
    assert time.monotonic() - began_s < 9
    assert not cluster.at[2].client.claim("t", p, fields="x", batch_size=2, lease_s=30, timeout=0.05)


@pytest.mark.parametrize("producer", [0, 1])
def test_waits_are_woken_across_nodes(cluster: OneProcess, p: str, producer: int) -> None:
    def later() -> None:
        time.sleep(0.2)
        cluster.at[producer].client.kv_batch_put([f"k{row}" for row in range(4)], p, batch())

    thread = threading.Thread(target=later)
    thread.start()
    waiter = cluster.at[2].client
    results = in_threads(
        [
            lambda: waiter.wait(p, fields="x", count=4, timeout=20),
            lambda: waiter.kv_batch_get(["k3"], p, ["x"], timeout=20),
            lambda: waiter.get_meta("x", 4, p, task_name="w", timeout=20),
            lambda: waiter.wait(p, fields="x", keys=["k1", "k2"], timeout=20),
        ]
    )
    thread.join()
    assert results[0].size == results[2].size == 4
    assert results[1]["x"].tolist() == [[9, 10, 11]]
    assert waiter.get_data(results[3])["x"].tolist() == batch()["x"][1:3].tolist()
    with pytest.raises(errors.TransferTimeoutError, match=r"waited 0\.1 s .*nosuch"):
        waiter.wait(p, fields="nosuch", count=1, timeout=0.1)
    with pytest.raises(errors.TransferTimeoutError, match=r"waited 0\.1 s"):
        waiter.get_data(results[0], fields=["nosuch"], timeout=0.1)


def test_asynchronous_calls(cluster: OneProcess, p: str) -> None:
    async def both() -> Any:
        reader, writer = cluster.at[2].client, cluster.at[1].client
        waits = [asyncio.create_task(reader.async_wait(p, fields="x", count=4, timeout=20)) for _ in range(20)]
        await asyncio.sleep(0.1)
        meta = await writer.async_put(batch(), partition_id=p)
        found = await asyncio.gather(*waits)
        assert all(wait.global_indexes == meta.global_indexes for wait in found)
        return await asyncio.gather(*[reader.async_get_data(meta) for _ in range(8)])

    for got in asyncio.run(both()):
        same(got, batch())


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
        try:
            for _ in range(40):
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


def test_a_cut_of_the_home_delays_puts_and_gets_and_applies_nothing_twice(cluster: OneProcess, p: str) -> None:
    meta = cluster.at[1].client.put(batch(), partition_id=p)
    cluster.cut.add(0)
    threading.Timer(0.5, cluster.cut.clear).start()
    results = in_threads(
        [lambda: cluster.at[1].client.put(batch(), partition_id=p), lambda: cluster.at[2].client.get_data(meta)]
    )
    same(results[1], batch())
    assert len(cluster.at[0].store.production(p, [])[1]) == 8
    cluster.cut.add(0)
    try:
        with pytest.raises(errors.NodeUnreachableError):
            cluster.at[1].client.put(batch(), partition_id=p, timeout=0.3)
    finally:
        cluster.cut.clear()


def test_limits_are_the_home_s(cluster: OneProcess, p: str) -> None:
    cluster.at[2].client.set_limits(p, max_unconsumed_rows=4, when_exceeded="wait")
    assert cluster.at[1].client.get_limits(p).max_unconsumed_rows == 4
    cluster.at[1].client.put(batch(), partition_id=p)
    with pytest.raises(errors.LimitTimeoutError, match=r"waited 0\.3"):
        cluster.at[1].client.put(batch(1), partition_id=p, timeout=0.3)
    consumer = threading.Timer(0.3, lambda: cluster.at[2].client.get_meta("x", 4, p, task_name="t"))
    consumer.start()
    assert cluster.at[1].client.put(batch(2), partition_id=p, timeout=20).size == 2
    consumer.join()
    stats = cluster.at[1].client.stats(p)
    assert stats.rows["total"] == 6
    assert stats.limits[p].max_unconsumed_rows == 4


def test_metadata_calls_of_every_kind(cluster: OneProcess, p: str) -> None:
    other = cluster.at[1].client
    meta = other.get_meta(["x"], 3, p, mode="insert")
    assert not meta.is_ready
    other.put(batch(3).select("x"), metadata=meta)
    assert meta.is_ready
    meta.update_custom_meta([{"w": row} for row in range(3)])
    other.set_custom_meta(meta)
    assert [row["w"] for row in cluster.at[2].client.get_meta("x", 0, p, mode="force_fetch").custom_meta] == [0, 1, 2]
    assert p in other.get_partition_list()
    assert PAYLOAD not in other.get_partition_list() + cluster.at[0].client.get_partition_list()
    assert set(other.fields_meta(p).field_names) == {"x"}
    assert other.coalesce(meta) is meta
    assert other.row_shapes(meta, "x") == [(3,)] * 3
    other.set_weight_version(p, 3)
    assert cluster.at[2].client.get_production_status("x", "never used") == (None, None)
    with pytest.raises(errors.PartitionNotFoundError):
        other.stats("never used")
    with pytest.raises(NotImplementedError, match="several nodes"):
        other.save_checkpoint("/nowhere")
    with pytest.raises(ValueError, match="no partition name"):
        other.put(batch(), partition_id=PAYLOAD)


def test_coalesced_at_home_and_read_elsewhere(cluster: OneProcess, p: str) -> None:
    from transferqueue.metadata import BatchMeta

    metas = [cluster.at[1 + row % 2].client.put(batch(1, row), partition_id=p) for row in range(6)]
    meta = BatchMeta.concat(metas)
    cluster.at[1].client.coalesce(meta)
    resolved = cluster.at[0].store.resolve(p, indexes=np.array(meta.global_indexes), fields=["x"], lease=False)
    assert len(resolved.pieces(0)) == 1
    got = cluster.at[0].client.get_data(meta)
    assert got["s"] == [f"row {row}" for row in range(6)]
    assert cluster.at[2].client.get_data(meta)["s"] == [f"row {row}" for row in range(6)]


def test_pickled_rows_of_another_node_are_refused_unless_allowed(cluster: OneProcess, p: str) -> None:
    rows = NonTensorStack(*[complex(row, 1) for row in range(2)])
    meta = cluster.at[1].client.put(TensorDict({"o": rows}, [2]), partition_id=p)
    assert cluster.at[1].client.get_data(meta)["o"] == [complex(0, 1), complex(1, 1)]
    for ordinal in (0, 2):
        with pytest.raises(errors.PickleNotAllowedError):
            list(cluster.at[ordinal].client.get_data(meta)["o"])


def test_prefetch(cluster: OneProcess, p: str) -> None:
    meta = cluster.at[1].client.put(batch(30), partition_id=p)
    native = cluster.at[0].client.put(batch(30), partition_id=p)
    for rows in (meta, native):
        assert cluster.at[2].client.prefetch(rows) > 0
        assert cluster.at[2].client.get_data_with_report(rows)[1].bytes_pulled == 0
    assert cluster.at[0].client.prefetch(meta, "x") == 30 * 24
    assert cluster.at[0].client.prefetch(native) == 0
