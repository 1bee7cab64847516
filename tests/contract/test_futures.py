"""Calls that do not block: their results go on to the next group before they are computed, here and on Ray."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tensordict import NonTensorStack, TensorDict

import transferqueue as tq
from tests.contract.future_workers import Methods, Mixed
from transferqueue.controller import LocalWorkerGroup, RayClassWithInitArgs, RayResourcePool, RayWorkerGroup
from transferqueue.errors import TransferTimeoutError
from transferqueue.workers import DataProto, DataProtoFuture

BACKENDS = ["local", "ray"]


@pytest.fixture(scope="module")
def session(ray_cluster: Any) -> Iterator[Any]:
    with tq.init(**{"storage.size": "64MiB"}) as session:
        yield session


@pytest.fixture(scope="module")
def groups(session: Any) -> Iterator[dict[tuple[str, type], Any]]:
    made: dict[tuple[str, type], Any] = {
        ("local", Methods): LocalWorkerGroup(Methods, 3),
        ("local", Mixed): LocalWorkerGroup(Mixed, 1),
        ("ray", Methods): RayWorkerGroup(RayResourcePool([3], use_gpu=False), RayClassWithInitArgs(Methods)),
        ("ray", Mixed): RayWorkerGroup(RayResourcePool([1], use_gpu=False), RayClassWithInitArgs(Mixed)),
    }
    yield made
    for group in made.values():
        group.close()


@pytest.fixture(params=BACKENDS)
def group(request: pytest.FixtureRequest, groups: Any) -> Any:
    return groups[request.param, Methods]


@pytest.fixture(params=BACKENDS)
def mixed(request: pytest.FixtureRequest, groups: Any) -> Any:
    return groups[request.param, Mixed]


def numbers(rows: int, **info: Any) -> DataProto:
    return DataProto.from_dict({"x": torch.arange(rows)}, meta_info=info)


def xs(data: Any) -> list[int]:
    return data.batch["x"].tolist()


@pytest.mark.timeout(60)
def test_a_future_goes_on_without_waiting(group: Any) -> None:
    started_s = time.perf_counter()
    first = group.proto(numbers(10, wait_s=0.5))
    second = group.proto(first)
    third = group.proto(second)
    assert time.perf_counter() - started_s < 0.5, "nothing was waited for"
    assert isinstance(first, DataProtoFuture)
    assert not third.done()
    with pytest.raises(TransferTimeoutError):
        third.get(timeout_s=0.01)
    assert xs(third.get()) == list(range(3, 13))
    assert third.done()
    assert first.get().non_tensor_batch["rank"].tolist() == [0, 0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert first.get().meta_info["metrics"] == {"rank": [0, 1, 2]}, "of all ranks"
    assert xs(asyncio.run(_awaited(group.proto(numbers(3))))) == [1, 2, 3]


async def _awaited(future: Any) -> Any:
    return await future


@pytest.mark.timeout(60)
def test_metadata_futures_go_through_two_meshes(group: Any, session: Any) -> None:
    client = tq.get_client()
    rows = TensorDict({"x": torch.arange(7), "uid": NonTensorStack(*"abcdefg")}, [7])
    for meta in (
        client.put(rows, partition_id="futures"),
        client.kv_batch_put([f"k{i}" for i in range(7)], "futures", rows),
    ):
        future = group.stored_again(group.stored(meta))
        result = future.get()
        assert type(result) is type(meta)
        first = group.stored(meta).get()
        assert first.extra_info["metrics"] == {"rank": [0, 2]}, "of the ranks that collect"
        found = client.get_data(result) if isinstance(meta, tq.BatchMeta) else client.kv_batch_get_by_meta(result)
        assert found["z"].tolist() == [10 * (x + 1) for x in range(7)]
        assert found["x"].tolist() == list(range(7))
        assert group.mean(group.stored(meta)) == [[0, 1.5], [2, 5.0]]


@pytest.mark.timeout(60)
def test_pads_are_taken_out_of_futures_too(group: Any) -> None:
    future = group.padded(numbers(4))
    assert group.rows(future) == [[[0, 1], None], [[2], None], [[3], None]]
    result = future.get()
    assert (xs(result), result.batch["rows"].tolist()) == (list(range(4)), [2] * 4)
    assert group.rows(group.padded(numbers(5)), other=group.padded(numbers(5)))[0] == [[0, 1], [0, 1]]


@pytest.mark.timeout(60)
def test_the_error_of_a_rank_is_raised_where_the_result_is_asked_for(group: Any) -> None:
    future = group.fails_on_one(numbers(8))
    with pytest.raises(ValueError, match="broken on purpose") as caught:
        future.get()
    assert (caught.value.rank, "fails_on_one" in str(caught.value)) == (1, True)
    with pytest.raises(ValueError, match="broken on purpose"):
        group.rows(future)
    with pytest.raises(ValueError, match="broken on purpose"):
        future.chunk(3)[1].get()
    assert not group.is_dead


@pytest.mark.timeout(60)
def test_a_method_may_have_the_future_itself_or_the_whole_result(group: Any) -> None:
    future = group.proto(numbers(5))
    assert group.handed(future) == [
        ("DataProtoFuture", [1, 2]),
        ("DataProtoFuture", [3, 4]),
        ("DataProtoFuture", [5]),
    ]
    assert group.whole(future) == [5] * 3
    assert [xs(piece.get()) for piece in future.chunk(2)] == [[1, 2, 3], [4, 5]]


@pytest.mark.timeout(60)
def test_modes_that_list_outputs_give_a_list_of_references(groups: Any, ray_cluster: Any) -> None:
    local, remote = (groups[backend, Methods].listed(10) for backend in BACKENDS)
    assert local.get() == remote.get() == [10, 11, 12]
    assert isinstance(remote, list)
    assert ray_cluster.get(list(remote)) == [10, 11, 12]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("producer", ["async_later", "sync_later"])
@pytest.mark.parametrize("consumer", ["async_later", "sync_later", "async_blocking", "sync_blocking"])
def test_coroutines_and_blocking_are_independent(mixed: Any, producer: str, consumer: str) -> None:
    """The same ranks compute both, in the same event loop: a consumer that held it would wait for ever."""
    future = getattr(mixed, producer)(numbers(3))
    result = getattr(mixed, consumer)(future)
    assert isinstance(result, DataProtoFuture) == consumer.endswith("later")
    assert xs(result.get() if consumer.endswith("later") else result) == [2, 3, 4]


@pytest.mark.timeout(60)
def test_classes_written_for_protos_run_on_metadata(group: Any, mixed: Any, session: Any) -> None:
    client = tq.get_client()
    data = DataProto.from_dict({"x": torch.arange(6)}, {"uid": list("abcdef")}, {"add": 100})
    meta = client.put(data, partition_id="protos")
    assert meta.extra_info == {"add": 100}
    result = group.written_for_protos(meta)
    assert (type(result), result.extra_info) == (tq.BatchMeta, {"metrics": {"rows": [3, 3], "rank": [0, 2]}})
    back = client.get_as(DataProto, result)
    assert back.batch["w"].tolist() == [100 + x for x in range(6)]
    assert back.non_tensor_batch["tag"].tolist() == back.non_tensor_batch["uid"].tolist() == list("abcdef")
    assert back.meta_info == result.extra_info
    by_value = group.written_for_protos(data)
    assert isinstance(by_value, DataProto)
    assert by_value.batch["w"].tolist() == back.batch["w"].tolist()
    assert client.get_data(mixed.async_stored(result))["v"].tolist() == [2 * x for x in range(6)]
    assert client.get_data(mixed.async_stored(group.stored(meta)))["v"].tolist() == [2 * x for x in range(6)]
