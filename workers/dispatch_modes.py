"""The dispatch modes by name: how arguments reach the ranks, how outputs come back, and who writes rows back."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from transferqueue.workers import dispatch_functions as functions
from transferqueue.workers.dispatch_mode import DispatchMode
from transferqueue.workers.dynamic_enum import DynamicEnum
from transferqueue.workers.errors import UnknownModeError
from transferqueue.workers.group_view import GroupView, collecting_ranks, dp_size, world_ranks, world_shards
from transferqueue.workers.megatron_layout import megatron_joined_ranks, megatron_shard_of_rank, megatron_shards
from transferqueue.workers.write_back import (
    CollectMaskWrites,
    EveryRankWrites,
    MegatronWrites,
    OneRankWrites,
    WriteBack,
)


class Dispatch(DynamicEnum):
    """How the arguments of a call reach the ranks and how their outputs come back. ``list(Dispatch)`` has the members;
    `register_dispatch_mode` adds more.

    * `RANK_ZERO`: rank 0 alone gets the arguments and runs; the result is its output. Rank 0 writes back.
    * `ONE_TO_ALL`: every rank gets all arguments; the result lists all outputs. Rank 0 writes back.
    * `ALL_TO_ALL` (the default of `register`): when all arguments are lists as long as the group, element i goes to
      rank i, else every rank gets them all; the result lists all outputs. Every rank writes its own rows back.
    * `DP_COMPUTE`: every argument is a list with one element per rank; the result lists all outputs.
    * `DP_COMPUTE_PROTO`: batches and metadata are split over all ranks by rows; the outputs are joined in order.
    * `DP_COMPUTE_PROTO_WITH_FUNC`: the same with a function as first argument, which every rank gets.
    * `DP_COMPUTE_METRIC`: split in the same way and never padded, as pads would count in the metric; the result lists
      the outputs of all ranks.
    * `MEGATRON_COMPUTE`: every argument is a list with one element per DP rank, which all TP, PP and CP ranks of the
      replica get; the result lists the outputs of TP rank 0, CP rank 0 and the last PP rank of each, which write back.
    * `MEGATRON_COMPUTE_PROTO`: the same for batches, which are split over the DP ranks, and joined.
    * `MEGATRON_PP_AS_DP`, `MEGATRON_PP_AS_DP_PROTO`: the same with every pipeline stage as a replica of its own: over
      DP x PP, collected from (and written by) TP rank 0 and CP rank 0.
    * `DIRECT_ROLLOUT_METHOD`: for methods that a rollout engine calls on the actors; a call on the group is refused.

    `make_nd_compute_dataproto_dispatch_fn(mesh_name)` makes the mode that splits over the DP ranks of a mesh, for ranks
    that share shards (tensor or pipeline parallel).
    """

    if TYPE_CHECKING:
        RANK_ZERO: Any
        ONE_TO_ALL: Any
        ALL_TO_ALL: Any
        DP_COMPUTE: Any
        DP_COMPUTE_PROTO: Any
        DP_COMPUTE_PROTO_WITH_FUNC: Any
        DP_COMPUTE_METRIC: Any
        MEGATRON_COMPUTE: Any
        MEGATRON_COMPUTE_PROTO: Any
        MEGATRON_PP_AS_DP: Any
        MEGATRON_PP_AS_DP_PROTO: Any
        DIRECT_ROLLOUT_METHOD: Any


DISPATCH_MODE_FN_REGISTRY: dict[Any, DispatchMode] = {}
"""The mode behind each member of `Dispatch`, for programs that read it. `register_dispatch_mode` adds to it."""


def register_dispatch_mode(
    dispatch_mode_name: str,
    dispatch_fn: Callable[..., Any],
    collect_fn: Callable[[Any, Any], Any],
    writes_back: WriteBack | None = None,
    row_shards: Callable[[GroupView], int] | None = None,
    shard_of_rank: Callable[[GroupView], Sequence[int]] | None = None,
    joined_ranks: Callable[[GroupView], Sequence[int]] | None = None,
    takes_pads: bool = True,
) -> Any:
    """Adds a member to `Dispatch` and returns it; the arguments are those of `DispatchMode`.

    Without `writes_back` each rank writes its own rows. The member travels to other processes by its name; the
    functions stay here, where the groups are made. `ValueError` for a name that is taken.
    """
    mode = DispatchMode(
        dispatch_fn,
        collect_fn,
        writes_back or EveryRankWrites(),
        row_shards,
        shard_of_rank,
        joined_ranks,
        takes_pads=takes_pads,
    )
    return _add(dispatch_mode_name, mode)


def update_dispatch_mode(
    dispatch_mode: Any,
    dispatch_fn: Callable[..., Any],
    collect_fn: Callable[[Any, Any], Any],
    writes_back: WriteBack | None = None,
) -> None:
    """Other functions for a mode, in groups that are made afterwards; what else the mode declares stays.

    Who writes back is for methods that are decorated afterwards: the ranks ask, and a method takes the answer along.
    """
    before = get_predefined_dispatch_fn(dispatch_mode)
    DISPATCH_MODE_FN_REGISTRY[dispatch_mode] = replace(
        before, dispatch_fn=dispatch_fn, collect_fn=collect_fn, writes_back=writes_back or before.writes_back
    )


def get_predefined_dispatch_fn(dispatch_mode: Any) -> DispatchMode:
    """The mode behind a member of `Dispatch`.

    `UnknownModeError` for anything else, and for a member whose functions are in another process.
    """
    mode = DISPATCH_MODE_FN_REGISTRY.get(dispatch_mode) if isinstance(dispatch_mode, Dispatch) else None
    if mode is not None:
        return mode if isinstance(mode, DispatchMode) else DispatchMode.of(mode, EveryRankWrites())
    known = tuple(member.name for member in DISPATCH_MODE_FN_REGISTRY)
    if isinstance(dispatch_mode, Dispatch):
        raise UnknownModeError(
            f"the functions of {dispatch_mode!r} are not in this process: a member travels by its name alone; call "
            "register_dispatch_mode where groups are made, for instance in the module of the worker class",
            mode=dispatch_mode,
            known=known,
        )
    raise UnknownModeError(
        f"unknown dispatch mode {dispatch_mode!r}; known: {', '.join(known)}", mode=dispatch_mode, known=known
    )


def make_nd_compute_dataproto_dispatch_fn(mesh_name: str) -> DispatchMode:
    """The mode for a mesh that the ranks registered with `_register_dispatch_collect_info` under that name.

    Batches are split by the mesh's DP size (not by the world size), the ranks of a replica get the same shard, and
    the collect mask says which of them writes back and is asked for the result.
    """
    return DispatchMode(
        dispatch_fn=functools.partial(functions.dispatch_lazy_compute_data_proto, mesh_name),
        collect_fn=functools.partial(functions.collect_lazy_compute_data_proto, mesh_name),
        writes_back=CollectMaskWrites(mesh_name),
        row_shards=functools.partial(_mesh_shards, mesh_name),
        shard_of_rank=functools.partial(_mesh_shard_of_rank, mesh_name),
        joined_ranks=functools.partial(_mesh_joined_ranks, mesh_name),
    )


def resolve_dispatch_mode(dispatch_mode: Any) -> DispatchMode:
    """The mode behind what `register` and `tqbridge` accept.

    A member of `Dispatch`, a `DispatchMode`, or a mapping with `dispatch_fn` and `collect_fn` (and `writes_back`,
    without which each rank writes its own rows). `UnknownModeError` for anything else.
    """
    if isinstance(dispatch_mode, DispatchMode):
        return dispatch_mode
    if isinstance(dispatch_mode, Dispatch):
        return get_predefined_dispatch_fn(dispatch_mode)
    if isinstance(dispatch_mode, Mapping) and {"dispatch_fn", "collect_fn"} <= set(dispatch_mode):
        return DispatchMode.of(dispatch_mode, EveryRankWrites())
    raise UnknownModeError(
        "dispatch_mode must be a member of Dispatch, a DispatchMode, or a mapping with 'dispatch_fn' and 'collect_fn'; "
        f"got {dispatch_mode!r}",
        mode=dispatch_mode,
        known=tuple(member.name for member in DISPATCH_MODE_FN_REGISTRY),
    )


def _add(name: str, mode: DispatchMode) -> Any:
    member = Dispatch.register(name)
    DISPATCH_MODE_FN_REGISTRY[member] = mode
    return member


def _mesh_shards(mesh_name: str, group: GroupView) -> int:
    return dp_size(group, mesh_name)


def _mesh_shard_of_rank(mesh_name: str, group: GroupView) -> list[int]:
    return group.dispatch_info(mesh_name)


def _mesh_joined_ranks(mesh_name: str, group: GroupView) -> list[int]:
    return collecting_ranks(group, mesh_name)


def _megatron_mode(
    dispatch_fn: Callable[..., Any], collect_fn: Callable[[Any, Any], Any], pp_as_dp: bool
) -> DispatchMode:
    return DispatchMode(
        dispatch_fn,
        collect_fn,
        MegatronWrites(pp_as_dp),
        row_shards=functools.partial(megatron_shards, pp_as_dp),
        shard_of_rank=functools.partial(megatron_shard_of_rank, pp_as_dp),
        joined_ranks=functools.partial(megatron_joined_ranks, pp_as_dp),
    )


def _world_mode(
    dispatch_fn: Callable[..., Any],
    collect_fn: Callable[[Any, Any], Any],
    joined_ranks: Callable[[GroupView], Sequence[int]] | None,
) -> DispatchMode:
    return DispatchMode(dispatch_fn, collect_fn, EveryRankWrites(), world_shards, world_ranks, joined_ranks)


def _predefine() -> None:
    """The members of `Dispatch` that are always there, in their order."""
    f = functions
    every, first = EveryRankWrites(), OneRankWrites(0)
    _add("RANK_ZERO", DispatchMode(f.dispatch_one_to_all, f.collect_rank_zero, first, rank_zero_only=True))
    _add("ONE_TO_ALL", DispatchMode(f.dispatch_one_to_all, f.collect_all_to_all, first))
    _add("ALL_TO_ALL", DispatchMode(f.dispatch_all_to_all, f.collect_all_to_all, every))
    _add("DP_COMPUTE", DispatchMode(f.dispatch_dp_compute, f.collect_dp_compute, every))
    split, joined = f.dispatch_dp_compute_data_proto, f.collect_dp_compute_data_proto
    _add("DP_COMPUTE_PROTO", _world_mode(split, joined, world_ranks))
    _add(
        "DP_COMPUTE_PROTO_WITH_FUNC",
        _world_mode(f.dispatch_dp_compute_data_proto_with_func, joined, world_ranks),
    )
    _add("DP_COMPUTE_METRIC", replace(_world_mode(split, f.collect_dp_compute, None), takes_pads=False))
    _add(
        "MEGATRON_COMPUTE",
        DispatchMode(f.dispatch_megatron_compute, f.collect_megatron_compute, MegatronWrites(False)),
    )
    _add(
        "MEGATRON_COMPUTE_PROTO",
        _megatron_mode(f.dispatch_megatron_compute_data_proto, f.collect_megatron_compute_data_proto, False),
    )
    _add(
        "MEGATRON_PP_AS_DP",
        DispatchMode(f.dispatch_megatron_pp_as_dp, f.collect_megatron_pp_as_dp, MegatronWrites(True)),
    )
    _add(
        "MEGATRON_PP_AS_DP_PROTO",
        _megatron_mode(f.dispatch_megatron_pp_as_dp_data_proto, f.collect_megatron_pp_as_dp_data_proto, True),
    )
    _add("DIRECT_ROLLOUT_METHOD", DispatchMode(f.refuse_direct_rollout_call, f.refuse_direct_rollout_call, every))


_predefine()
