"""Calls on a group: dispatch, execute, collect, with the data plane and the processes replaced by stand-ins."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from tensordict import NonTensorData, NonTensorStack, TensorDict

from tests.unit.controller.local_group import LocalGroup
from tests.unit.workers.fake_client import SESSION, FakeClient
from transferqueue.errors import SchemaMismatchError
from transferqueue.metadata import BatchMeta, KVBatchMeta
from transferqueue.workers import (
    Broadcast,
    Dispatch,
    Execute,
    PerRank,
    Worker,
    make_nd_compute_dataproto_dispatch_fn,
    register,
)

ACTOR = make_nd_compute_dataproto_dispatch_fn("actor")


class Compute(Worker):
    """DP 2 x TP 2 for the mesh "actor": ranks 0 and 1 are the replica of DP rank 0; TP rank 0 collects."""

    def setup(self) -> None:
        self.seen: list[int] = []
        self._register_dispatch_collect_info("actor", dp_rank=self.rank // 2, is_collect=self.rank % 2 == 0)

    def _plus_one(self, batch: TensorDict) -> TensorDict:
        self.seen.append(batch.batch_size[0])
        output = TensorDict({"y": batch["x"] + 1}, batch_size=batch.batch_size)
        output["rank"] = NonTensorData(self.rank)
        return output

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def dp(self, batch: TensorDict) -> TensorDict:
        return self._plus_one(batch)

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO, auto_padding=True)
    def padded(self, batch: TensorDict) -> TensorDict:
        return self._plus_one(batch)

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO, auto_padding=False)
    def never_padded(self, batch: TensorDict) -> TensorDict:
        return self._plus_one(batch)

    @register(dispatch_mode=ACTOR)
    def mesh(self, batch: TensorDict) -> TensorDict:
        return self._plus_one(batch)

    @register(dispatch_mode=ACTOR)
    def early(self, batch: TensorDict) -> TensorDict | None:
        return self._plus_one(batch) if batch.batch_size[0] else None

    @register(dispatch_mode=ACTOR)
    def metrics(self, batch: TensorDict, factor: float = 1.0) -> float:
        return self.rank * factor

    @register(dispatch_mode=ACTOR)
    def jagged(self, batch: TensorDict) -> TensorDict:
        rows = [torch.full((int(n),), int(n)) for n in batch["x"]]
        ragged = torch.nested.nested_tensor(rows, layout=torch.jagged)
        return TensorDict({"r": ragged, "uid": batch.get("uid")}, batch_size=batch.batch_size)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def one(self, batch: TensorDict) -> TensorDict:
        return self._plus_one(batch)

    @register(dispatch_mode=Dispatch.RANK_ZERO)
    def first(self, value: Any) -> Any:
        return self.rank, value

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, execute_mode=Execute.RANK_ZERO)
    def alone(self, value: Any) -> Any:
        return self.rank, value

    @register(dispatch_mode=Dispatch.ALL_TO_ALL)
    def spread(self, value: Any, other: Any = None) -> Any:
        return self.rank, value, other

    @register(dispatch_mode=Dispatch.DP_COMPUTE)
    def each(self, value: Any) -> Any:
        return self.rank, value

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, blocking=False)
    def later(self) -> int:
        return self.rank


@pytest.fixture
def group() -> LocalGroup:
    return LocalGroup(Compute, 4)


def rows(client: FakeClient, count: int) -> BatchMeta:
    return client.put(TensorDict({"x": torch.arange(count)}, [count]), None, "train")


def keyed(client: FakeClient, count: int) -> KVBatchMeta:
    keys = [f"k{i}" for i in range(count)]
    client.put_keys(keys, TensorDict({"x": torch.arange(count)}, [count]), "train")
    return KVBatchMeta(keys, [{"n": i} for i in range(count)], "train", ["x"], session=SESSION)


@pytest.mark.parametrize("count", [10, 8, 3, 1])
@pytest.mark.parametrize("method", ["dp", "mesh"])
def test_rows_come_back_in_order_however_they_divide(
    client: FakeClient, group: LocalGroup, count: int, method: str
) -> None:
    meta = rows(client, count)
    meta.reorder(list(reversed(range(count))))
    result = getattr(group, method)(meta)
    assert result.global_indexes == meta.global_indexes
    assert client.column(result, "y") == list(range(count, 0, -1))


def test_shards_are_as_many_as_dp_ranks_not_as_ranks(client: FakeClient, group: LocalGroup) -> None:
    group.mesh(rows(client, 4))
    assert [worker.seen for worker in group.local_workers] == [[2], [2], [2], [2]]
    shipped = next(sent for sent in group.sent if sent[0])
    assert [meta.global_indexes for (meta,) in shipped] == [[0, 1], [0, 1], [2, 3], [2, 3]]
    group.dp(rows(client, 4))
    assert [worker.seen[-1] for worker in group.local_workers] == [1, 1, 1, 1]


def test_ranks_without_rows_are_called_too(client: FakeClient, group: LocalGroup) -> None:
    result = group.mesh(rows(client, 1))
    assert [worker.seen for worker in group.local_workers] == [[1], [1], [0], [0]]
    assert result.size == 1
    assert client.column(group.early(rows(client, 1)), "y") == [1], "None of a rank that had no rows is left out"


def test_only_collecting_ranks_write(client: FakeClient, group: LocalGroup) -> None:
    meta = rows(client, 4)
    writes = len(client.stored)
    group.mesh(meta)
    assert sorted(indexes for indexes, _ in client.stored[writes:]) == [[0, 1], [2, 3]]
    outputs = group.one(meta)
    assert [len(output) for output in outputs] == [4, 0, 0, 0], "ONE_TO_ALL gives the outputs of all ranks"
    assert len(client.stored) == writes + 3


def test_values_of_all_collecting_ranks_are_in_extra_info(client: FakeClient, group: LocalGroup) -> None:
    assert group.dp(rows(client, 4)).extra_info == {"rank": [0, 1, 2, 3]}
    assert group.mesh(rows(client, 4)).extra_info == {"rank": [0, 2]}
    assert group.mesh(rows(client, 1)).extra_info == {"rank": 0}


def test_keys_keep_order_tags_and_partition(client: FakeClient, group: LocalGroup) -> None:
    meta = keyed(client, 5)
    meta.reorder([4, 2, 0, 1, 3])
    result = group.dp(meta)
    assert isinstance(result, KVBatchMeta)
    assert result.keys == ["k4", "k2", "k0", "k1", "k3"]
    assert result.tags == [{"n": 4}, {"n": 2}, {"n": 0}, {"n": 1}, {"n": 3}]
    assert (result.partition_id, result.fields) == ("train", ["x", "y"])


@pytest.mark.parametrize("method", ["dp", "mesh", "jagged"])
@pytest.mark.parametrize("count", [7, 2])
def test_batches_by_value_are_split_and_joined(group: LocalGroup, method: str, count: int) -> None:
    batch = TensorDict({"x": torch.arange(count), "uid": NonTensorStack(*(f"u{i}" for i in range(count)))}, [count])
    if method == "jagged" and count == 2:
        batch["x"] = batch["x"] + 1
    result = getattr(group, method)(batch)
    assert result.batch_size[0] == count
    if method == "jagged":
        assert [row.tolist() for row in result["r"].unbind()] == [[int(n)] * int(n) for n in batch["x"]]
        assert result["uid"] == batch["uid"]
    else:
        assert result["y"].tolist() == list(range(1, count + 1))


def test_padding_makes_shards_equal_and_is_never_stored(client: FakeClient, group: LocalGroup) -> None:
    for meta in (rows(client, 7), keyed(client, 7)):
        writes = len(client.stored)
        result = group.padded(meta)
        assert [worker.seen[-1] for worker in group.local_workers] == [2, 2, 2, 2]
        assert (result.size, result.num_padding) == (7, 0)
        assert sum(len(indexes) for indexes, _ in client.stored[writes:]) == 7
        assert meta.num_padding == 0, "the caller's metadata is not changed"
    result = group.padded(TensorDict({"x": torch.arange(7)}, [7]))
    assert result["y"].tolist() == [1, 2, 3, 4, 5, 6, 7]


def test_more_pads_than_rows(client: FakeClient, group: LocalGroup) -> None:
    result = group.padded(rows(client, 1))
    assert [worker.seen for worker in group.local_workers] == [[1], [1], [1], [1]]
    assert (result.size, client.column(result, "y")) == (1, [1])
    assert group.padded(TensorDict({"x": torch.arange(1)}, [1]))["y"].tolist() == [1]


def test_a_group_that_pads_unless_the_method_says_otherwise(client: FakeClient) -> None:
    group = LocalGroup(Compute, 4, auto_padding=True)
    group.dp(rows(client, 5))
    group.never_padded(rows(client, 5))
    group.mesh(rows(client, 5))
    assert [worker.seen for worker in group.local_workers] == [[2, 2, 3], [2, 1, 3], [2, 1, 3], [2, 1, 3]]


def test_outputs_that_are_no_batches_are_listed(client: FakeClient, group: LocalGroup) -> None:
    assert group.metrics(rows(client, 4), factor=Broadcast(10.0)) == [0.0, 20.0]


def test_rank_zero(group: LocalGroup) -> None:
    assert group.first("v") == (0, "v")
    assert group.alone([1, 2, 3, 4]) == (0, [1, 2, 3, 4])


def test_values_per_rank(group: LocalGroup) -> None:
    assert group.spread([1, 2, 3, 4]) == [(0, 1, None), (1, 2, None), (2, 3, None), (3, 4, None)]
    assert group.spread([1, 2])[3] == (3, [1, 2], None)
    assert group.spread(PerRank("abcd"), other=[1, 2, 3, 4])[2] == (2, "c", [1, 2, 3, 4])
    assert group.each(["a", "b", "c", "d"])[1] == (1, "b")
    assert group.each(Broadcast(0))[3] == (3, 0)
    for wrong in ([1, 2], 5):
        with pytest.raises(ValueError, match="one element for each of the 4 ranks"):
            group.each(wrong)


def test_futures_are_results_and_arguments(client: FakeClient, group: LocalGroup) -> None:
    future = group.later()
    assert (future.get(), future.done()) == ([0, 1, 2, 3], True)
    assert group.first(future) == (0, [0, 1, 2, 3])


def test_ranks_that_share_a_dp_rank_must_have_one_collector(client: FakeClient) -> None:
    class Both(Compute):
        def setup(self) -> None:
            self.seen = []
            self._register_dispatch_collect_info("actor", dp_rank=self.rank // 2, is_collect=self.rank < 2)

    with pytest.raises(SchemaMismatchError, match=r"DP rank 0 has 2 collecting ranks \[0, 1\]"):
        LocalGroup(Both, 4).mesh(rows(client, 4))

    class Gap(Compute):
        def setup(self) -> None:
            self._register_dispatch_collect_info("actor", dp_rank=self.rank * 2, is_collect=True)

    with pytest.raises(ValueError, match=r"DP ranks \[0, 2, 4, 6\]"):
        LocalGroup(Gap, 4).mesh(rows(client, 4))


def test_rows_follow_dp_ranks_when_those_do_not_follow_ranks(client: FakeClient) -> None:
    class Backwards(Compute):
        def setup(self) -> None:
            self.seen = []
            self._register_dispatch_collect_info("actor", dp_rank=3 - self.rank, is_collect=True)

    result = LocalGroup(Backwards, 4).mesh(rows(client, 6))
    assert result.global_indexes == [0, 1, 2, 3, 4, 5]
    assert result.extra_info == {"rank": [3, 2, 1, 0]}


def test_a_group_that_is_dropped_is_gone_at_once() -> None:
    gc.disable()
    try:
        group = LocalGroup(Compute, 1)
        method, gone = group.alone, weakref.ref(group)
        del group
        assert method(3) == method(3), "a method holds its group, as Python's bound methods do"
        assert gone() is not None
        del method
        assert gone() is None
    finally:
        gc.enable()


def test_methods_of_a_group_are_listed_and_described(group: LocalGroup) -> None:
    assert {"dp", "mesh", "world_size"} <= set(dir(group))
    assert repr(group.dp) == "<group method LocalGroup.dp(batch: 'TensorDict') -> 'TensorDict'>"
    assert hasattr(group, "padded")


def test_what_is_not_registered_is_named(group: LocalGroup) -> None:
    with pytest.raises(AttributeError, match=r"no member 'nothing'; methods registered on the worker class: .*mesh"):
        _ = group.nothing
    with pytest.raises(AttributeError) as raised:
        _ = group.nothing
    assert "_query" not in str(raised.value), "what the group itself asks the ranks is of no use here"


def test_a_method_with_a_name_of_the_group_is_refused() -> None:
    class Clash(Worker):
        @register(dispatch_mode=Dispatch.ONE_TO_ALL)
        def execute_all(self) -> None:
            pass

    with pytest.raises(ValueError, match=r"Clash\.execute_all"):
        LocalGroup(Clash, 1)
