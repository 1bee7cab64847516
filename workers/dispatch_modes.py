"""Dispatch modes: how arguments reach the ranks, how outputs come back, and who writes rows back."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transferqueue.workers import dispatch_functions as functions
from transferqueue.workers.dynamic_enum import DynamicEnum
from transferqueue.workers.group_view import GroupView, dp_size
from transferqueue.workers.write_back import CollectMaskWrites, EveryRankWrites, OneRankWrites, WriteBack


@dataclass(frozen=True)
class DispatchMode(Mapping[str, Any]):
    """One way of spreading a call over a group.

    Args:
        dispatch_fn: ``(group, *args, **kwargs) -> (args, kwargs)`` of `PerRank` or `Broadcast` values (or lists as long
            as the group).
        collect_fn: ``(group, outputs) -> result``.
        writes_back: which ranks write their outputs back and report them; the others return empty metadata.
        row_shards: into how many shards the mode splits the rows of a batch; None for a mode that does not split.

    Also readable as a mapping (``mode["dispatch_fn"]``), the form in which programs hold these pairs.
    """

    dispatch_fn: Callable[..., Any]
    collect_fn: Callable[[Any, Any], Any]
    writes_back: WriteBack
    row_shards: Callable[[GroupView], int] | None = None

    def __getitem__(self, name: str) -> Any:
        if name in self.__dataclass_fields__:
            return getattr(self, name)
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.__dataclass_fields__)

    def __len__(self) -> int:
        return len(self.__dataclass_fields__)


class Dispatch(DynamicEnum):
    """How the arguments of a call reach the ranks and how their outputs come back. ``list(Dispatch)`` has the members;
    `register_dispatch_mode` adds more.

    * `RANK_ZERO`: every rank gets all arguments; the result is rank 0's output. Rank 0 writes back.
    * `ONE_TO_ALL`: every rank gets all arguments; the result lists all outputs. Rank 0 writes back.
    * `ALL_TO_ALL` (the default of `register`): when all arguments are lists as long as the group, element i goes to
      rank i, else every rank gets them all; the result lists all outputs. Every rank writes its own rows back.
    * `DP_COMPUTE`: every argument is a list with one element per rank; the result lists all outputs.
    * `DP_COMPUTE_PROTO`: batches and metadata are split over all ranks by rows; the outputs are joined in order.

    `make_nd_compute_dataproto_dispatch_fn(mesh_name)` makes the mode that splits over the DP ranks of a mesh, for ranks
    that share shards (tensor or pipeline parallel).
    """

    if TYPE_CHECKING:
        RANK_ZERO: Any
        ONE_TO_ALL: Any
        ALL_TO_ALL: Any
        DP_COMPUTE: Any
        DP_COMPUTE_PROTO: Any


_modes: dict[Any, DispatchMode] = {}


def register_dispatch_mode(
    dispatch_mode_name: str,
    dispatch_fn: Callable[..., Any],
    collect_fn: Callable[[Any, Any], Any],
    writes_back: WriteBack | None = None,
    row_shards: Callable[[GroupView], int] | None = None,
) -> Any:
    """Adds a member to `Dispatch` and returns it.

    Without `writes_back` each rank writes its own rows. `ValueError` for a name that is taken.
    """
    mode = DispatchMode(dispatch_fn, collect_fn, writes_back or EveryRankWrites(), row_shards)
    member = Dispatch.register(dispatch_mode_name)
    _modes[member] = mode
    return member


def update_dispatch_mode(
    dispatch_mode: Any,
    dispatch_fn: Callable[..., Any],
    collect_fn: Callable[[Any, Any], Any],
    writes_back: WriteBack | None = None,
) -> None:
    """Other functions for a mode; who writes back stays unless given. Methods decorated before keep theirs."""
    before = get_predefined_dispatch_fn(dispatch_mode)
    _modes[dispatch_mode] = DispatchMode(dispatch_fn, collect_fn, writes_back or before.writes_back, before.row_shards)


def get_predefined_dispatch_fn(dispatch_mode: Any) -> DispatchMode:
    """The mode behind a member of `Dispatch`. `ValueError` for anything else."""
    mode = _modes.get(dispatch_mode) if isinstance(dispatch_mode, Dispatch) else None
    if mode is None:
        raise ValueError(f"unknown dispatch mode {dispatch_mode!r}; known: {', '.join(m.name for m in _modes)}")
    return mode


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
    )


def resolve_dispatch_mode(dispatch_mode: Any) -> DispatchMode:
    """The mode behind what `register` and `tqbridge` accept.

    A member of `Dispatch`, a `DispatchMode`, or a mapping with `dispatch_fn` and `collect_fn` (and `writes_back`,
    without which each rank writes its own rows). `ValueError` for anything else.
    """
    if isinstance(dispatch_mode, DispatchMode):
        return dispatch_mode
    if isinstance(dispatch_mode, Dispatch):
        return get_predefined_dispatch_fn(dispatch_mode)
    if isinstance(dispatch_mode, Mapping) and {"dispatch_fn", "collect_fn"} <= set(dispatch_mode):
        unknown = set(dispatch_mode) - set(DispatchMode.__dataclass_fields__)
        if unknown:
            raise ValueError(f"a dispatch mode has no entry {', '.join(sorted(map(repr, unknown)))}")
        return DispatchMode(**{"writes_back": EveryRankWrites(), **dispatch_mode})
    raise ValueError(
        "dispatch_mode must be a member of Dispatch, a DispatchMode, or a mapping with 'dispatch_fn' and 'collect_fn'; "
        f"got {dispatch_mode!r}"
    )


def _mesh_shards(mesh_name: str, group: GroupView) -> int:
    return dp_size(group, mesh_name)


def _world_shards(group: GroupView) -> int:
    return group.world_size


register_dispatch_mode("RANK_ZERO", functions.dispatch_one_to_all, functions.collect_rank_zero, OneRankWrites(0))
register_dispatch_mode("ONE_TO_ALL", functions.dispatch_one_to_all, functions.collect_all_to_all, OneRankWrites(0))
register_dispatch_mode("ALL_TO_ALL", functions.dispatch_all_to_all, functions.collect_all_to_all)
register_dispatch_mode("DP_COMPUTE", functions.dispatch_dp_compute, functions.collect_dp_compute)
register_dispatch_mode(
    "DP_COMPUTE_PROTO",
    functions.dispatch_dp_compute_data_proto,
    functions.collect_dp_compute_data_proto,
    row_shards=_world_shards,
)
