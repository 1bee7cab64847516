"""Every dispatch mode with every kind of batch, blocking or not, `async def` or not: the same rows, once, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tensordict import NonTensorData, TensorDict

from tests.unit.workers.fake_client import SESSION, FakeClient
from transferqueue.controller import LocalWorkerGroup
from transferqueue.metadata import BatchMeta, KVBatchMeta
from transferqueue.workers import (
    DataProto,
    DataProtoFuture,
    Dispatch,
    DistGlobalInfo,
    DistRankInfo,
    Future,
    Worker,
    make_nd_compute_dataproto_dispatch_fn,
    register,
)

ROWS = 7
SPLITTING = {
    "dp": Dispatch.DP_COMPUTE_PROTO,
    "mesh": make_nd_compute_dataproto_dispatch_fn("actor"),
    "megatron": Dispatch.MEGATRON_COMPUTE_PROTO,
    "pp_as_dp": Dispatch.MEGATRON_PP_AS_DP_PROTO,
    "with_func": Dispatch.DP_COMPUTE_PROTO_WITH_FUNC,
}
LISTING = {
    "metric": Dispatch.DP_COMPUTE_METRIC,
    "each": Dispatch.DP_COMPUTE,
    "to_all": Dispatch.ONE_TO_ALL,
    "spread": Dispatch.ALL_TO_ALL,
    "zero": Dispatch.RANK_ZERO,
}


def column(batch: Any, name: str) -> torch.Tensor:
    found: torch.Tensor = batch.batch[name] if isinstance(batch, DataProto) else batch[name]
    return found


def plus_one(batch: Any, rank: int) -> Any:
    """What every method returns: of the kind it got, with the rank's metrics."""
    y = column(batch, "x") + 1
    if isinstance(batch, DataProto):
        return DataProto.from_dict({"y": y}, meta_info={"metrics": {"rank": rank}})
    made = TensorDict({"y": y}, [len(y)])
    made["metrics"] = NonTensorData({"rank": rank})
    return made


class Places(Worker):
    """DP 2 x TP 2 for the mesh; DP 2 x PP 2 for Megatron."""

    def setup(self) -> None:
        self._register_dispatch_collect_info("actor", dp_rank=self.rank // 2, is_collect=self.rank % 2 == 0)

    def get_megatron_rank_info(self) -> DistRankInfo:
        return DistRankInfo(tp_rank=0, dp_rank=self.rank % 2, pp_rank=self.rank // 2, cp_rank=0)

    def get_megatron_global_info(self) -> DistGlobalInfo:
        return DistGlobalInfo(tp_size=1, dp_size=2, pp_size=2, cp_size=1)


def _method(mode: Any, blocking: bool, with_func: bool, coroutine: bool) -> Any:
    def method(self: Any, batch: Any, other: Any = None) -> Any:
        assert other is None or column(other, "x").tolist() == column(batch, "x").tolist()
        return plus_one(batch, self.rank)

    def method_with_func(self: Any, function: Any, batch: Any, other: Any = None) -> Any:
        return function(batch, self.rank)

    async def later(self: Any, batch: Any, other: Any = None) -> Any:
        await asyncio.sleep(0)
        return method(self, batch, other)

    async def later_with_func(self: Any, function: Any, batch: Any, other: Any = None) -> Any:
        await asyncio.sleep(0)
        return method_with_func(self, function, batch, other)

    plain, awaited = (method_with_func, later_with_func) if with_func else (method, later)
    return register(dispatch_mode=mode, blocking=blocking)(awaited if coroutine else plain)


def _class_of_every_mode(coroutine: bool) -> type:
    return type(
        "Every",
        (Places,),
        {
            f"{name}{ending}": _method(mode, blocking, name == "with_func", coroutine)
            for name, mode in {**SPLITTING, **LISTING}.items()
            for ending, blocking in (("", True), ("_later", False))
        },
    )


@pytest.fixture(scope="module", params=[False, True], ids=["def", "async def"])
def group(request: pytest.FixtureRequest) -> Iterator[LocalWorkerGroup]:
    with LocalWorkerGroup(_class_of_every_mode(coroutine=request.param), 4) as group:
        group.execute_all_sync("setup")
        yield group


def made(kind: type, client: FakeClient) -> Any:
    batch = TensorDict({"x": torch.arange(ROWS)}, [ROWS])
    if kind is DataProto:
        return DataProto(batch)
    if kind is TensorDict:
        return batch
    keys = [f"k{i}" for i in range(ROWS)]
    meta = client.put_keys(keys, batch, "p")
    return meta if kind is BatchMeta else KVBatchMeta(keys, [{}] * ROWS, "p", ["x"], session=SESSION)


def ys(result: Any, client: FakeClient) -> list[int]:
    if isinstance(result, BatchMeta):
        return client.column(result, "y") if result.size else []
    if isinstance(result, KVBatchMeta):
        return [client.rows[client.keys["p", key]]["y"].item() for key in result.keys]
    return column(result, "y").tolist()


def of_one_kind(results: list[Any], kind: type) -> bool:
    return {type(result) for result in results} == {kind}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", [DataProto, TensorDict, BatchMeta, KVBatchMeta])
@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.parametrize("name", list(SPLITTING))
def test_modes_that_split(group: Any, client: FakeClient, name: str, blocking: bool, kind: type) -> None:
    batch = made(kind, client)
    method = getattr(group, name if blocking else f"{name}_later")
    before = [plus_one] if name == "with_func" else []
    expected = list(range(1, ROWS + 1))
    for args, kwargs in (((batch,), {}), ((batch, batch), {}), ((batch,), {"other": batch})):
        result = method(*before, *args, **kwargs)
        assert isinstance(result, Future) != blocking
        if not blocking:
            assert isinstance(result, DataProtoFuture)
            pieces = [piece.get() for piece in result.chunk(3)]
            assert [y for piece in pieces for y in ys(piece, client)] == expected
            assert of_one_kind(pieces, kind)
            result = result.get()
        assert of_one_kind([result], kind)
        assert ys(result, client) == expected
    info = {"dp": [0, 1, 2, 3], "with_func": [0, 1, 2, 3], "pp_as_dp": [0, 2, 1, 3], "mesh": [0, 2], "megatron": [2, 3]}
    if kind is DataProto:
        assert result.meta_info == {"metrics": {"rank": info[name]}}
    elif kind is not TensorDict:
        assert result.extra_info == {"metrics": {"rank": info[name]}}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", [DataProto, TensorDict, BatchMeta, KVBatchMeta])
@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.parametrize("name", list(LISTING))
def test_modes_that_list(group: Any, client: FakeClient, name: str, blocking: bool, kind: type) -> None:
    batch = made(kind, client)
    pieces = list(batch.chunk(4)) if name == "each" and kind is not DataProto else None
    if name == "each" and kind is DataProto:
        pieces = batch.chunk(4, uneven=True)
    result = getattr(group, name if blocking else f"{name}_later")(batch if pieces is None else pieces)
    assert isinstance(result, Future) != blocking
    outputs = result if blocking else result.get()
    if name == "zero":
        outputs = [outputs]
    found = [ys(output, client) for output in outputs]
    everything = list(range(1, ROWS + 1))
    if name in ("metric", "each"):
        assert ([len(ys) for ys in found], [y for ys in found for y in ys]) == ([2, 2, 2, 1], everything)
    elif name == "to_all" and kind in (BatchMeta, KVBatchMeta):
        assert found == [everything, [], [], []], "all ranks see the same rows: one of them writes"
    else:
        assert all(ys == everything for ys in found)
    assert of_one_kind(outputs, kind)
    if kind is BatchMeta and name == "metric":
        assert [output.extra_info["metrics"]["rank"] for output in outputs] == [0, 1, 2, 3]
