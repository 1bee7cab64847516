"""What each predefined mode makes of the arguments and outputs of a call."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict

from transferqueue.metadata import BatchMeta, KVBatchMeta
from transferqueue.workers import (
    Broadcast,
    Dispatch,
    DispatchError,
    DispatchRefusedError,
    OutputMismatchError,
    PerRank,
    get_predefined_dispatch_fn,
    make_nd_compute_dataproto_dispatch_fn,
)


@dataclass
class Place:
    tp_rank: int
    dp_rank: int
    pp_rank: int
    cp_rank: int = 0


class Group:
    """DP 2 x TP 2 x PP 2; ranks laid out as Megatron does: TP fastest, PP slowest."""

    world_size = 8

    def __init__(self) -> None:
        self.places = [Place(tp, dp, pp) for pp in range(2) for dp in range(2) for tp in range(2)]

    def megatron_info(self) -> tuple[list[Any], Any]:
        return self.places, SimpleNamespace(tp_size=2, dp_size=2, pp_size=2, cp_size=1)

    def dispatch_info(self, mesh_name: str) -> list[int]:
        return [place.dp_rank for place in self.places]

    def collect_info(self, mesh_name: str) -> list[bool]:
        return [place.tp_rank == 0 and place.pp_rank == 1 for place in self.places]


def batch(rows: int) -> TensorDict:
    return TensorDict({"x": torch.arange(rows)}, [rows])


def metadata(rows: int) -> BatchMeta:
    return BatchMeta(np.arange(rows), "train", session="s")


def shipped(mode: Any, *args: Any, **kwargs: Any) -> list[Any]:
    """What each rank gets as first argument."""
    dispatched, named = mode.dispatch_fn(Group(), *args, **kwargs)
    return list(dispatched[0] if dispatched else next(iter(named.values())))


def values(pieces: list[Any]) -> list[Any]:
    return [piece.global_indexes if isinstance(piece, BatchMeta) else piece["x"].tolist() for piece in pieces]


@pytest.mark.parametrize("make", [batch, metadata])
def test_every_rank_of_a_replica_gets_the_same_shard(make: Any) -> None:
    mode = get_predefined_dispatch_fn(Dispatch.MEGATRON_COMPUTE_PROTO)
    pieces = shipped(mode, make(5))
    assert values(pieces) == [[0, 1, 2], [0, 1, 2], [3, 4], [3, 4]] * 2
    assert len({id(piece) for piece in pieces}) == 2, "one object for each replica"
    mesh = make_nd_compute_dataproto_dispatch_fn("actor")
    assert values(shipped(mesh, make(5))) == values(pieces)
    assert values(shipped(mesh, rows=make(5))) == values(pieces)


def test_the_last_stage_of_tensor_rank_zero_is_collected() -> None:
    outputs = [batch(1) + rank for rank in range(8)]
    for mode in (
        get_predefined_dispatch_fn(Dispatch.MEGATRON_COMPUTE_PROTO),
        make_nd_compute_dataproto_dispatch_fn("actor"),
    ):
        assert mode.collect_fn(Group(), outputs)["x"].tolist() == [4, 6]
        assert mode.joined_ranks is not None
        assert list(mode.joined_ranks(Group())) == [4, 6]
    listed = get_predefined_dispatch_fn(Dispatch.MEGATRON_COMPUTE)
    assert listed.collect_fn(Group(), list(range(8))) == [4, 6]


def test_stages_as_replicas_split_over_dp_and_pp() -> None:
    mode = get_predefined_dispatch_fn(Dispatch.MEGATRON_PP_AS_DP_PROTO)
    assert values(shipped(mode, batch(6))) == [[0, 1], [0, 1], [4], [4], [2, 3], [2, 3], [5], [5]]
    outputs = [TensorDict({"x": piece["x"]}, piece.batch_size) for piece in shipped(mode, batch(6))]
    assert mode.collect_fn(Group(), outputs)["x"].tolist() == [0, 1, 2, 3, 4, 5], "in the order of the rows"
    listed = get_predefined_dispatch_fn(Dispatch.MEGATRON_PP_AS_DP)
    assert shipped(listed, ["a", "b", "c", "d"]) == ["a", "a", "c", "c", "b", "b", "d", "d"]
    assert listed.collect_fn(Group(), list(range(8))) == [0, 4, 2, 6]


def test_lists_are_for_replicas() -> None:
    mode = get_predefined_dispatch_fn(Dispatch.MEGATRON_COMPUTE)
    assert shipped(mode, ("a", "b")) == ["a", "a", "b", "b"] * 2
    with pytest.raises(DispatchError, match="one element for each of the 2 shards, got 8 elements"):
        mode.dispatch_fn(Group(), list(range(8)))


def test_who_writes_back_is_who_is_collected() -> None:
    group = Group()
    for member in (
        Dispatch.MEGATRON_COMPUTE,
        Dispatch.MEGATRON_COMPUTE_PROTO,
        Dispatch.MEGATRON_PP_AS_DP,
        Dispatch.MEGATRON_PP_AS_DP_PROTO,
    ):
        mode = get_predefined_dispatch_fn(member)
        sizes = group.megatron_info()[1]
        owners = [
            SimpleNamespace(get_megatron_rank_info=lambda p=place: p, get_megatron_global_info=lambda s=sizes: s)
            for place in group.places
        ]
        writers = [rank for rank, owner in enumerate(owners) if mode.writes_back.collects(owner)]
        outputs = mode.collect_fn(group, list(range(8)))
        assert writers == sorted(outputs), member
    with pytest.raises(TypeError, match="get_megatron_rank_info"):
        mode.writes_back.collects(object())


def test_context_parallel_ranks_share_shards_and_rank_zero_answers() -> None:
    group = Group()
    group.places = [Place(0, dp, 0, cp) for dp in range(4) for cp in range(2)]
    group.megatron_info = lambda: (  # type: ignore[method-assign]
        group.places,
        SimpleNamespace(tp_size=1, dp_size=4, pp_size=1, cp_size=2),
    )
    mode = get_predefined_dispatch_fn(Dispatch.MEGATRON_COMPUTE_PROTO)
    pieces = mode.dispatch_fn(group, batch(4))[0][0]
    assert values(pieces) == [[0], [0], [1], [1], [2], [2], [3], [3]]
    assert mode.joined_ranks is not None
    assert list(mode.joined_ranks(group)) == [0, 2, 4, 6]


def test_a_function_goes_to_every_rank() -> None:
    mode = get_predefined_dispatch_fn(Dispatch.DP_COMPUTE_PROTO_WITH_FUNC)
    (function, pieces), _ = mode.dispatch_fn(Group(), len, batch(8))
    assert isinstance(function, Broadcast)
    assert function.value is len
    assert values(pieces) == [[i] for i in range(8)]
    for wrong in ((), (batch(8),)):
        with pytest.raises(DispatchError, match="first argument is the function"):
            mode.dispatch_fn(Group(), *wrong)
    with pytest.raises(DispatchError, match="argument 1 is of type builtin_function"):
        mode.dispatch_fn(Group(), len, print)


def test_metrics_are_split_alike_and_listed() -> None:
    mode = get_predefined_dispatch_fn(Dispatch.DP_COMPUTE_METRIC)
    assert values(shipped(mode, batch(3)))[:4] == [[0], [1], [2], []]
    assert mode.collect_fn(Group(), list(range(8))) == list(range(8))


def test_direct_rollout_calls_are_refused_with_a_reason() -> None:
    mode = get_predefined_dispatch_fn(Dispatch.DIRECT_ROLLOUT_METHOD)
    with pytest.raises(DispatchRefusedError, match="called by the rollout engine on the rank's actor directly"):
        mode.dispatch_fn(Group(), 1)
    assert issubclass(DispatchRefusedError, NotImplementedError)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1, "int"),
        (None, "NoneType"),
        ([1, 2], "list"),
        ({"a": 1}, "dict"),
        (torch.zeros(8), "torch.Tensor"),
        (np.zeros(8), "numpy.ndarray"),
        (Place(0, 0, 0), "Place"),
    ],
)
@pytest.mark.parametrize(
    "mode",
    [
        get_predefined_dispatch_fn(Dispatch.DP_COMPUTE_PROTO),
        get_predefined_dispatch_fn(Dispatch.DP_COMPUTE_METRIC),
        get_predefined_dispatch_fn(Dispatch.MEGATRON_PP_AS_DP_PROTO),
        make_nd_compute_dataproto_dispatch_fn("actor"),
    ],
    ids=["dp", "metric", "pp_as_dp", "mesh"],
)
def test_what_has_no_rows_is_refused_by_name(mode: Any, value: Any, shown: str) -> None:
    with pytest.raises(
        DispatchError, match=rf"argument 'factor' is of type .*{shown}.*pass Broadcast\(value\)"
    ) as info:
        mode.dispatch_fn(Group(), batch(8), factor=value)
    assert info.value.argument == "factor"
    for builtin in (ValueError, TypeError, AssertionError):
        assert isinstance(info.value, builtin)
    with pytest.raises(DispatchError, match=r"argument 1 is of type"):
        mode.dispatch_fn(Group(), batch(8), value)
    _, named = mode.dispatch_fn(Group(), batch(8), factor=Broadcast(value), each=PerRank(range(8)))
    assert named["factor"].value is value
    assert list(named["each"]) == list(range(8))


def test_batches_of_different_length_are_refused_with_both() -> None:
    mode = get_predefined_dispatch_fn(Dispatch.DP_COMPUTE_PROTO)
    with pytest.raises(DispatchError, match=r"argument 'other' has 7 rows and the one before it .*, 0, has 8"):
        mode.dispatch_fn(Group(), batch(8), other=metadata(7))
    mode.dispatch_fn(Group(), batch(8), other=Broadcast(metadata(7)))


def test_outputs_of_different_types_are_refused_with_both() -> None:
    group = Group()
    mesh = make_nd_compute_dataproto_dispatch_fn("actor")
    mixed = [None] * 4 + [metadata(1), None, {"loss": 1.0}, None]
    with pytest.raises(OutputMismatchError, match="rank 4 returned BatchMeta and rank 6 dict") as info:
        mesh.collect_fn(group, mixed)
    assert info.value.found == {4: "BatchMeta", 6: "dict"}
    dp = get_predefined_dispatch_fn(Dispatch.DP_COMPUTE_PROTO).collect_fn
    with pytest.raises(OutputMismatchError, match="rank 0 returned BatchMeta and rank 2 KVBatchMeta"):
        dp(group, [metadata(1), None, KVBatchMeta(["a"], [{}], "train")])
    with pytest.raises(OutputMismatchError, match="rank 0 returned str and rank 1 list"):
        dp(group, ["a", ["a"]])
    assert dp(group, [0, 0.5, np.float32(1)]) == [0, 0.5, 1], "numbers are numbers"
    assert dp(group, [None, None]) == [None, None]
    assert isinstance(info.value, AssertionError)
