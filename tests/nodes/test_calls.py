"""Calls without payload between nodes: keys, consumption, claims, waits, limits, streams."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from tests.nodes.batches import batch, payload_rows, same
from tests.nodes.one_process import OneProcess, in_threads
from transferqueue import errors
from transferqueue.nodes.names import PAYLOAD
from transferqueue.nodes.payload import GRACE_S
from transferqueue.streaming import StreamingDataset

pytestmark = pytest.mark.timeout(120)


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


def test_that_nothing_came_is_no_node_that_does_not_answer(cluster: OneProcess, p: str) -> None:
    """The home waits for as long as the caller does: its answer comes before the call is given up."""
    cluster.at[0].client.put(batch(2), partition_id=p)
    away = cluster.at[2].client

    def waits_in_vain(call: Callable[[], object]) -> type[BaseException]:
        with pytest.raises(errors.TransferTimeoutError) as raised:
            call()
        return raised.type

    assert not away.claim("t", p, fields="none", batch_size=1, lease_s=30, partial=True, timeout=1.0)
    calls: list[Callable[[], object]] = [
        lambda: away.wait(p, fields="none", count=1, timeout=1.0),
        lambda: away.kv_batch_get(["none"], p, ["x"], timeout=1.0),
    ]
    met = in_threads([partial(waits_in_vain, call) for call in calls])
    assert met == [errors.TransferTimeoutError] * 2
    now_s = time.monotonic()
    for timeout in (0.0, 0.2, 0.9, 1.0, 1.3, 60.0):
        assert away.link.wait_slice(now_s + timeout) <= max(0.3, min(timeout - 0.7, 1.0)) + 1e-9


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


def test_a_cut_of_the_home_delays_puts_and_gets_and_applies_nothing_twice(cluster: OneProcess, p: str) -> None:
    cluster.settle()
    before = payload_rows(cluster, 1)
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
    upkeep = cluster.at[1].home.upkeep
    cluster.settle()
    assert payload_rows(cluster, 1) == before + 12, "whether the home has done it is not known"
    upkeep.sweep()
    assert payload_rows(cluster, 1) == before + 12, "the put may be under way"
    upkeep.grace_s = 0.0
    cluster.cut.add(2)
    upkeep.sweep()
    assert payload_rows(cluster, 1) == before + 12, "one that may name them did not answer"
    cluster.cut.clear()
    upkeep.sweep()
    assert payload_rows(cluster, 1) == before + 12, "who answers may have stood still, and be about to name them"
    upkeep.sweep()
    upkeep.grace_s = GRACE_S
    assert payload_rows(cluster, 1) == before + 8


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
        other.save_controller_checkpoint("/nowhere")
    with pytest.raises(ValueError, match="no partition name"):
        other.put(batch(), partition_id=PAYLOAD)


def test_prefetch(cluster: OneProcess, p: str) -> None:
    meta = cluster.at[1].client.put(batch(30), partition_id=p)
    native = cluster.at[0].client.put(batch(30), partition_id=p)
    for rows in (meta, native):
        assert cluster.at[2].client.prefetch(rows) > 0
        assert cluster.at[2].client.get_data_with_report(rows)[1].bytes_pulled == 0
    assert cluster.at[0].client.prefetch(meta, "x") == 30 * 24
    assert cluster.at[0].client.prefetch(native) == 0


@pytest.mark.parametrize("dp_rank", [None, 0])
def test_a_stream_of_a_partition_elsewhere(cluster: OneProcess, p: str, dp_rank: int | None) -> None:
    stream = StreamingDataset(
        p, fields=["x", "s"], batch_size=4, task_name="t", total_rows=10, dp_rank=dp_rank, timeout=20, session="here"
    )
    stream.client = lambda: cluster.at[2].client  # type: ignore[method-assign]

    def produce() -> None:
        for start in range(0, 10, 2):
            time.sleep(0.05)
            cluster.at[start // 2 % 2].client.put(batch(2, start), partition_id=p)

    producer = threading.Thread(target=produce)
    producer.start()
    got = [text for rows, _ in stream for text in rows["s"]]
    producer.join()
    assert got == [f"row {number}" for number in range(10)]
    stream.total_rows, stream.timeout = 12, 0.1
    with pytest.raises(errors.TransferTimeoutError, match="has consumed 10 of the 12"):
        next(iter(stream))


def test_prefetched_to_another_node(cluster: OneProcess, p: str) -> None:
    meta = cluster.at[1].client.put(batch(30), partition_id=p)
    assert cluster.at[0].client.prefetch(meta, node=2) > 0
    assert cluster.at[2].client.get_data_with_report(meta)[1].bytes_pulled == 0
    assert cluster.at[0].client.prefetch(meta, node=1) == 0


def test_coalesced_on_another_node(cluster: OneProcess, p: str) -> None:
    at = [node.client for node in cluster.at]
    rows = [TensorDict({"x": torch.arange(4 * n, 4 * n + 4)[:, None].repeat(1, 4096)}, [4]) for n in range(3)]
    metas = [client.put(rows[number], partition_id=p) for number, client in enumerate(at)]
    meta = metas[0].concat(metas).select_samples([11, 0, 5, 1, 8, 4])
    at[2].prefetch(metas[0].select_samples([1]))  # part of it is there, in another block
    assert at[0].coalesce(meta, node=2) is meta
    before = cluster.pulled_nbytes
    data, report = at[2].get_data_with_report(meta, fields=["x"])
    assert report.bytes_pulled == cluster.pulled_nbytes - before == 0
    assert report.bytes_copied == 0  # they lie as they are asked for
    assert data["x"][:, 0].tolist() == [11, 0, 5, 1, 8, 4]
    assert at[2].coalesce(meta, "x", node=2) is meta
    for call in (at[0].coalesce, at[0].prefetch):
        with pytest.raises(ValueError, match="no node 7"):
            call(meta, node=7)


def test_which_node_keeps_which_row(cluster: OneProcess, p: str) -> None:
    at = [node.client for node in cluster.at]
    metas = [client.put(batch(2, 2 * number).select("x"), partition_id=p) for number, client in enumerate(at)]
    q = f"{p}-q"
    at[1].place_partition(q)
    of_q = at[0].put(batch(1).select("x"), partition_id=q)
    meta = metas[0].concat([metas[2], of_q, metas[0], metas[1]])
    for number, client in enumerate(at):
        before = len(cluster.calls)
        assert client.row_nodes(meta, "x").tolist() == [2, 2, 0, 0, 0, 1, 1]
        homes = [ordinal for ordinal, method in cluster.calls[before:] if method == "rows.nodes"]
        assert sorted(homes) == [home for home in (0, 1) if home != number]  # one round trip a home
        assert client.node_ordinals() == {"0": 0, "1": 1, "2": 2}
    # Of fields on several nodes, the node that has most of them.
    at[1].put(batch(2).select("x").rename_key_("x", "y"), metadata=metas[2])
    at[1].put(batch(2).select("x").rename_key_("x", "z"), metadata=metas[2])
    assert at[0].row_nodes(metas[2], ["x", "y"]).tolist() == [1, 1]
    assert at[0].row_nodes(metas[2], ["x", "y", "z"]).tolist() == [1, 1]
    assert at[0].row_nodes(metas[2], ["x"]).tolist() == [2, 2]
    assert at[0].row_nodes(metas[2], ["none"]).tolist() == [-1, -1]
    at[0].clear_partition(q)
