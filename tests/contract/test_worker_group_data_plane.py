"""Worker groups on the real data plane: the controller ships metadata, ranks read and write shared memory."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tensordict import NonTensorStack, TensorDict

import transferqueue as tq
from tests.contract.batch_workers import PeakMemory, Plain, Stage, anonymous_kib
from tests.support.scrape import scrape
from transferqueue.controller import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup, WorkerError
from transferqueue.conversions import batch_meta2kv_batch_meta, kv_batch_meta2batch_meta
from transferqueue.errors import FieldNotReadyError, SchemaMismatchError, SessionNotFoundError, StaleMetadataError
from transferqueue.metadata import BatchMeta, KVBatchMeta

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def session(ray_cluster: Any) -> Iterator[Any]:
    opened = tq.init(**{"storage.size": "2GiB", "metrics.port": 0})
    try:
        yield opened
    finally:
        opened.close()


@pytest.fixture(scope="module")
def group(session: Any) -> Iterator[RayWorkerGroup]:
    with RayWorkerGroup(RayResourcePool([4], use_gpu=False), RayClassWithInitArgs(Stage)) as started:
        yield started


@pytest.fixture
def client(session: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    client = tq.get_client()
    yield client
    for partition in client.get_partition_list():
        client.clear_partition(partition)


def batch(rows: int) -> TensorDict:
    uid = NonTensorStack(*(f"u{i}" for i in range(rows)))
    return TensorDict({"x": torch.arange(rows), "uid": uid}, [rows])


def rows_of(client: Any, rows: int) -> BatchMeta:
    meta: BatchMeta = client.put(batch(rows), partition_id="train")
    return meta


def keys_of(client: Any, rows: int) -> KVBatchMeta:
    keys = [f"k{i}" for i in range(rows)]
    meta: KVBatchMeta = client.kv_batch_put(keys, "train", batch(rows), tags=[{"n": i} for i in range(rows)])
    return meta


def column(client: Any, meta: BatchMeta, name: str) -> list[Any]:
    values = client.get_data(meta, fields=[name]).get(name)
    return [row.tolist() for row in values.unbind(0)] if isinstance(values, torch.Tensor) else values.tolist()


def test_ranks_find_the_session_in_their_environment(group: RayWorkerGroup, session: Any) -> None:
    assert {name for _, name in group.environment()} == {session.name}


def test_every_method_has_figures_of_all_ranks(group: RayWorkerGroup, client: Any) -> None:
    address = tq.get_metrics_endpoint()
    before = scrape(address)
    method = "Stage.plus_one"
    group.plus_one(rows_of(client, 8))
    with pytest.raises(WorkerError):
        group.short(rows_of(client, 8))
    after = scrape(address)

    def grown(name: str, **labels: str) -> float:
        key = (f"transferqueue_{name}", frozenset(labels.items()))
        return after.samples[key] - before.samples.get(key, 0.0)

    assert grown("bridge_calls_total", method=method, outcome="ok") == 4
    assert grown("bridge_calls_total", method=method, outcome="failed") == 0
    assert grown("bridge_rows_total", method=method) == 8
    for phase in ("get", "run", "put"):
        assert grown("bridge_seconds_total", method=method, phase=phase) > 0
    assert sum(grown("bridge_bytes_total", method=method, how=how) for how in ("viewed", "copied")) > 8 * 8
    assert grown("bridge_calls_total", method="Stage.short", outcome="failed") >= 1


@pytest.mark.parametrize("rows", [10, 4, 2])
def test_each_stage_adds_fields_to_the_same_rows(group: RayWorkerGroup, client: Any, rows: int) -> None:
    meta = rows_of(client, rows)
    meta.reorder(list(reversed(range(rows))))
    indexes = list(meta.global_indexes)
    first = group.plus_one(meta)
    second = group.plus_two(first)
    third = group.replica(second)
    assert first.global_indexes == second.global_indexes == third.global_indexes == indexes
    assert third.field_names == ["label", "uid", "w", "x", "y", "z"]
    expected = list(reversed(range(rows)))
    assert column(client, third, "y") == [n + 1 for n in expected]
    assert column(client, third, "w") == [n + 2 for n in expected]
    assert column(client, third, "z") == [n + 100 for n in expected], "each replica added 100 once, on its own view"
    assert column(client, third, "x") == expected, "what a rank writes in place reaches nobody else"
    assert column(client, third, "label") == [f"u{n}" for n in expected]
    assert first.extra_info == {"rank": list(range(4)) if rows >= 4 else [0, 1]}
    assert second.extra_info == {}


@pytest.mark.parametrize("rows", [6, 2])
def test_keys_order_tags_and_partition_are_kept(group: RayWorkerGroup, client: Any, rows: int) -> None:
    meta = keys_of(client, rows)
    meta.fields = ["x"]
    meta.reorder(list(reversed(range(rows))))
    result = group.plus_one(meta)
    assert isinstance(result, KVBatchMeta)
    assert (result.keys, result.tags) == (meta.keys, meta.tags)
    assert (result.partition_id, result.fields) == ("train", ["x", "y"])
    assert client.kv_batch_get_by_meta(result)["y"].tolist() == [n + 1 for n in reversed(range(rows))]
    rows_meta = kv_batch_meta2batch_meta(result)
    assert batch_meta2kv_batch_meta(rows_meta).keys == result.keys


def test_pads_are_seen_and_never_stored(group: RayWorkerGroup, client: Any) -> None:
    for meta in (rows_of(client, 3), keys_of(client, 3)):
        result = group.padded(meta)
        assert (result.size, result.num_padding) == (3, 0)
        by_index = kv_batch_meta2batch_meta(result) if isinstance(result, KVBatchMeta) else result
        assert column(client, by_index, "ragged") == [[0], [1, 1], [2, 2, 2]]
        assert column(client, by_index, "rows") == [2, 2, 2], "both shards had two rows"


def test_methods_see_the_fields_that_are_named_and_extra_info(group: RayWorkerGroup, client: Any) -> None:
    meta = rows_of(client, 3).select_fields(["x"])
    meta.extra_info = {"temperature": 0.7}
    outputs = group.everything(meta)
    assert outputs[0].extra_info == {"fields": ["temperature", "x"], "x": [0, 1, 2], "temperature": 0.7}
    assert [output.size for output in outputs] == [3, 0, 0, 0], "ONE_TO_ALL: one rank answers for all"
    with pytest.raises(WorkerError, match="temperature"):
        group.everything(rows_of(client, 3))


def test_wrong_row_counts_and_fields_that_are_not_ready(group: RayWorkerGroup, client: Any) -> None:
    meta = rows_of(client, 4)
    with pytest.raises(
        SchemaMismatchError, match=r"Stage\.short on rank \d returned 1 rows for a batch of 4"
    ) as caught:
        group.short(meta)
    assert isinstance(caught.value, WorkerError)
    assert (caught.value.expected, caught.value.found) == (4, 1)
    missing = BatchMeta(
        meta.global_indexes, "train", {"nope": {"dtype": torch.int64, "shape": ()}}, session=meta.session
    )
    with pytest.raises(FieldNotReadyError, match="nope"):
        group.nothing(missing)
    client.clear_samples(meta)
    with pytest.raises(StaleMetadataError):
        group.plus_one(meta)


def test_metadata_of_another_session_is_refused_with_both_names(
    group: RayWorkerGroup, client: Any, session: Any
) -> None:
    meta = rows_of(client, 4)
    meta.session = "another-session"
    with pytest.raises(SessionNotFoundError, match="another-session") as caught:
        group.plus_one(meta)
    assert session.name in str(caught.value)


def test_plain_actors_attach_by_themselves(ray_cluster: Any, client: Any) -> None:
    actor = ray_cluster.remote(Plain).options(num_cpus=0).remote()
    try:
        meta = rows_of(client, 3)
        first = ray_cluster.get(actor.plus_one.remote(meta))
        second = ray_cluster.get(actor.plus_two.remote(batch=first))
        assert second.field_names == ["plain", "plain2", "uid", "x"]
        assert column(client, second, "plain") == [1, 2, 3]
        assert column(client, second, "plain2") == [2, 3, 4]
    finally:
        ray_cluster.kill(actor)


def test_field_case_109_no_payload_passes_through_the_controller(group: RayWorkerGroup, client: Any) -> None:
    rows = 64
    nbytes = 1 << 30
    large = TensorDict({"large": torch.ones(rows, nbytes // 4 // rows)}, [rows])
    meta = client.put(large, partition_id="train")
    del large
    assert len(pickle.dumps(meta)) < 1_000
    before_kib, peak = anonymous_kib(), PeakMemory()
    result = group.touch_large(meta)
    assert anonymous_kib() - before_kib < 10 * 1024
    assert peak.grown_nbytes() < 10 << 20, "the controller, at its highest"
    assert result.extra_info["total"] == nbytes / 4 / 4, "each of 4 ranks saw a quarter of the ones"
    assert max(_every(result.extra_info["grown_kib"])) < 4 * 1024, "a rank that reads copies nothing"
    assert max(_every(result.extra_info["peak_nbytes"])) < 1.1 * nbytes / 4, "its rows mapped, and little beside them"


def _every(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
