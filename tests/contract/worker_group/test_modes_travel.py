"""Modes of a program on ranks in other processes: the class of a script travels by value, members by their names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict

import transferqueue as tq
from transferqueue.controller import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup, framed_method
from transferqueue.workers import (
    DataProto,
    Dispatch,
    DistGlobalInfo,
    DistRankInfo,
    Execute,
    OneRankWrites,
    PerRank,
    Worker,
    make_nd_compute_dataproto_dispatch_fn,
    padding_mask,
    register,
    register_dispatch_mode,
)

pytestmark = pytest.mark.timeout(120)


class LastRankGroup(RayWorkerGroup):
    def execute_last_rank(self, method_name: str, *args: Any, **kwargs: Any) -> Any:
        """As programs write it: references of Ray."""
        value = args[0][-1] if isinstance(args[0], list) else args[0].value
        return getattr(self.workers[-1], method_name).remote(value, **kwargs)


def worker_class() -> type:
    """Of no module that a rank could import."""

    class Script(Worker):
        """DP 2 x TP 2."""

        def __init__(self) -> None:
            super().__init__()
            self._register_dispatch_collect_info("actor", dp_rank=self.rank // 2, is_collect=self.rank % 2 == 0)

        def get_megatron_rank_info(self) -> DistRankInfo:
            return DistRankInfo(tp_rank=self.rank % 2, dp_rank=self.rank // 2, pp_rank=0, cp_rank=0)

        def get_megatron_global_info(self) -> DistGlobalInfo:
            return DistGlobalInfo(tp_size=2, dp_size=2, pp_size=1, cp_size=1)

        @register(dispatch_mode=Dispatch.REVERSED)  # type: ignore[attr-defined]
        def backwards(self, value: Any) -> Any:
            return self.rank, value

        @register(dispatch_mode=Dispatch.REVERSED)  # type: ignore[attr-defined]
        def written_once(self, batch: TensorDict) -> TensorDict:
            return TensorDict({"by": torch.full(batch.batch_size, self.rank)}, batch.batch_size)

        @register(dispatch_mode=Dispatch.ONE_TO_ALL, execute_mode=Execute.LAST_RANK)  # type: ignore[attr-defined]
        def last(self, value: Any) -> Any:
            return self.rank, value

        @register(dispatch_mode=Dispatch.ONE_TO_ALL, execute_mode=Execute.LAST_RANK, blocking=False)  # type: ignore[attr-defined]
        def last_later(self, value: Any) -> Any:
            return self.rank, value

        @register(dispatch_mode=Dispatch.RANK_ZERO)
        def same_member(self, mode: Any, execute: Any) -> Any:
            return self.rank, mode.name, execute.name, mode is Dispatch[mode.name], mode

        @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO_WITH_FUNC)
        def apply(self, function: Any, batch: DataProto) -> DataProto:
            return function(batch)

        @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn("actor"))
        def mesh(self, batch: DataProto) -> DataProto:
            return DataProto.from_dict({"y": batch.batch["x"][:, 0] + 1, "by": torch.full((len(batch),), self.rank)})

        @register(dispatch_mode=Dispatch.MEGATRON_COMPUTE_PROTO)
        def megatron(self, batch: DataProto) -> DataProto:
            return DataProto.from_dict({"y": batch.batch["x"][:, 0] + 1, "by": torch.full((len(batch),), self.rank)})

        @register(dispatch_mode=Dispatch.MEGATRON_COMPUTE_PROTO, auto_padding=True)
        def stored(self, batch: TensorDict) -> TensorDict:
            mask = padding_mask()
            assert mask is not None
            return TensorDict(
                {"pad": torch.from_numpy(mask), "by": torch.full(batch.batch_size, self.rank)}, [len(mask)]
            )

        @register(dispatch_mode=Dispatch.MEGATRON_COMPUTE_PROTO, auto_padding=True)
        def pads_by_value(self, batch: DataProto, *, other: TensorDict | None = None) -> DataProto:
            mask = padding_mask()
            pads = 0 if mask is None else int(mask.sum())
            data = DataProto.from_dict({"y": batch.batch["x"][:, 0], "pads": torch.full((len(batch),), pads)})
            data.meta_info["type"] = type(batch).__name__
            return data

    return Script


def reverse(group: Any, *args: Any, **kwargs: Any) -> Any:
    return tuple([(arg, rank) for rank in reversed(range(group.world_size))] for arg in args), kwargs


def whole(group: Any, *args: Any, **kwargs: Any) -> Any:
    return tuple(PerRank(arg if isinstance(arg, list) else [arg] * group.world_size) for arg in args), kwargs


@pytest.fixture(scope="module")
def session() -> Iterator[tq.Session]:
    with tq.init(**{"storage.size": "64MiB"}) as session:
        yield session


@pytest.fixture(scope="module")
def group(ray_cluster: Any, session: tq.Session) -> Iterator[RayWorkerGroup]:
    lock = np.random.default_rng(0).bit_generator.lock  # no pickle of it: what is sent is a name and no function

    def dispatch(group: Any, *args: Any, **kwargs: Any) -> Any:
        with lock:
            return whole(group, *args) if hasattr(args[0], "global_indexes") else reverse(group, *args, **kwargs)

    register_dispatch_mode("REVERSED", dispatch, lambda group, output: output[::-1], OneRankWrites(3))
    Execute.register("LAST_RANK")
    try:
        pool = RayResourcePool([4], use_gpu=False, max_colocate_count=1)
        with LastRankGroup(pool, RayClassWithInitArgs(worker_class())) as ranks:
            yield ranks
    finally:
        Dispatch.remove("REVERSED")
        Execute.remove("LAST_RANK")


def rows(count: int, width: int = 1) -> DataProto:
    return DataProto.from_dict({"x": torch.arange(count)[:, None].expand(-1, width).contiguous()})


def test_a_mode_whose_functions_stay_here(group: RayWorkerGroup) -> None:
    assert group.backwards("v") == [(3, ("v", 0)), (2, ("v", 1)), (1, ("v", 2)), (0, ("v", 3))]


def test_who_writes_back_in_a_mode_of_the_program(group: RayWorkerGroup) -> None:
    meta = tq.get_client().put(TensorDict({"x": torch.arange(3)}, [3]), partition_id="train")
    outputs = group.written_once(meta)
    assert [len(output) for output in outputs] == [3, 0, 0, 0], "reversed: rank 3 wrote"
    assert tq.get_client().get_data(outputs[0], fields=["by"])["by"].tolist() == [3, 3, 3]


def test_a_value_of_execute_that_names_a_method_of_the_group(group: RayWorkerGroup) -> None:
    assert group.last("v") == (3, "v")
    assert group.last_later("w").get() == (3, "w")


def test_a_member_is_the_same_object_after_the_journey(group: RayWorkerGroup) -> None:
    answer = group.same_member(Dispatch["REVERSED"], Execute["LAST_RANK"])
    assert answer[:4] == (0, "REVERSED", "LAST_RANK", True)
    assert answer[4] is Dispatch["REVERSED"]


def test_a_function_for_every_rank(group: RayWorkerGroup) -> None:
    doubled = group.apply(lambda batch: DataProto.from_dict({"y": batch.batch["x"][:, 0] * 2}), rows(5))
    assert doubled.batch["y"].tolist() == [0, 2, 4, 6, 8]


@pytest.mark.parametrize("width", [1, 8192])
def test_pads_of_a_batch_by_value_are_known_to_the_rank(group: RayWorkerGroup, width: int) -> None:
    for result in (group.pads_by_value(rows(5, width)), group.pads_by_value(batch=rows(5, width))):
        assert result.batch["y"].tolist() == [0, 1, 2, 3, 4]
        assert result.batch["pads"].tolist() == [0, 0, 0, 1, 1]
        assert result.meta_info["type"] == "DataProto"
    both = group.pads_by_value(rows(5, width), other=TensorDict({"x": torch.arange(5)}, [5]))
    assert both.batch["pads"].tolist() == [0, 0, 0, 1, 1]
    assert group.pads_by_value(rows(4, width)).batch["pads"].tolist() == [0] * 4


@pytest.mark.parametrize("method", ["mesh", "megatron"])
def test_a_shard_is_put_once_for_a_replica(
    group: RayWorkerGroup, ray_cluster: Any, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    stored: list[Any] = []
    put = ray_cluster.put

    def counted(value: Any, **options: Any) -> Any:
        stored.append(value)
        return put(value, **options)

    getattr(group, method)(rows(2))  # the ranks were asked for their places
    monkeypatch.setattr(ray_cluster, "put", counted)
    result = getattr(group, method)(rows(7, width=8192))
    assert result.batch["y"].tolist() == list(range(1, 8))
    assert result.batch["by"].tolist() == [0] * 4 + [2] * 3
    assert [len(shard) for shard in stored] == [4, 3]


def test_a_frame_that_a_replica_shares_is_made_once(group: RayWorkerGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[bytes | None] = []
    frame = framed_method.CallWriter.frame

    def counted(writer: Any, args: Any, kwargs: Any) -> bytes | None:
        made.append(frame(writer, args, kwargs))
        return made[-1]

    meta = tq.get_client().put(TensorDict({"x": torch.arange(5)}, [5]), partition_id="frames")
    group.stored(meta)
    monkeypatch.setattr(framed_method.CallWriter, "frame", counted)
    result = group.stored(meta)
    assert len(made) == 2
    assert (result.size, result.num_padding) == (5, 0)
    data = tq.get_client().get_data(result, fields=["pad", "by"])
    assert data["pad"].tolist() == [False] * 5
    assert data["by"].tolist() == [0, 0, 0, 2, 2], "TP rank 0 of each replica wrote"
