"""The dispatch and collect functions of the predefined modes.

A dispatch function turns the caller's arguments into `PerRank` or `Broadcast` values; a collect function turns the
outputs of all ranks, in rank order, into the caller's result. Batches (metadata, TensorDicts) are split into
consecutive rows; every other argument of a splitting mode goes to all ranks as it is, unless it is a `PerRank`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from transferqueue.workers.arguments import Broadcast, PerRank
from transferqueue.workers.group_view import GroupView, collecting_ranks, dp_size
from transferqueue.workers.row_batch import join_outputs, kind_of

Dispatched = tuple[tuple[Any, ...], dict[str, Any]]


def _each(function: Callable[[Any], Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Dispatched:
    return tuple(function(arg) for arg in args), {name: function(value) for name, value in kwargs.items()}


def dispatch_one_to_all(group: GroupView, *args: Any, **kwargs: Any) -> Dispatched:
    """Every rank gets every argument whole."""
    return _each(lambda value: value if isinstance(value, (PerRank, Broadcast)) else Broadcast(value), args, kwargs)


def dispatch_all_to_all(group: GroupView, *args: Any, **kwargs: Any) -> Dispatched:
    """Arguments as given: the rule of `execute_all` applies (lists as long as the group are spread)."""
    return args, kwargs


def collect_all_to_all(group: GroupView, output: Any) -> Any:
    """The outputs of all ranks in rank order."""
    return output


def collect_rank_zero(group: GroupView, output: Any) -> Any:
    """Rank 0's output."""
    return output[0]


def dispatch_dp_compute(group: GroupView, *args: Any, **kwargs: Any) -> Dispatched:
    """Each argument is a list or tuple with one element per rank. `ValueError` for anything else."""

    def per_rank(value: Any) -> Any:
        if isinstance(value, Broadcast):
            return value
        if not isinstance(value, (list, tuple)) or len(value) != group.world_size:
            found = f"{len(value)} elements" if isinstance(value, (list, tuple)) else type(value).__name__
            raise ValueError(
                f"DP_COMPUTE takes a list with one element for each of the {group.world_size} ranks, got {found}; "
                "use Broadcast(value) for one that all ranks share"
            )
        return PerRank(value)

    return _each(per_rank, args, kwargs)


def collect_dp_compute(group: GroupView, output: Any) -> Any:
    """The outputs of all ranks in rank order."""
    return output


def dispatch_dp_compute_data_proto(group: GroupView, *args: Any, **kwargs: Any) -> Dispatched:
    """Batches split over all ranks, the first ones a row longer where it does not divide."""
    ranks = list(range(group.world_size))
    return _each(lambda value: _shards(value, len(ranks), ranks), args, kwargs)


def collect_dp_compute_data_proto(group: GroupView, output: Any) -> Any:
    """The batches of all ranks joined in rank order; a list when the outputs are no batches."""
    return join_outputs(output)


def dispatch_lazy_compute_data_proto(mesh_name: str, group: GroupView, *args: Any, **kwargs: Any) -> Dispatched:
    """Batches split over the DP ranks of a mesh; the ranks of one replica get the same shard."""
    shards, dp_ranks = dp_size(group, mesh_name), group.dispatch_info(mesh_name)
    return _each(lambda value: _shards(value, shards, dp_ranks), args, kwargs)


def collect_lazy_compute_data_proto(mesh_name: str, group: GroupView, output: Any) -> Any:
    """The batches of the collecting ranks joined in DP-rank order; a list of theirs when they are no batches."""
    return join_outputs([output[rank] for rank in collecting_ranks(group, mesh_name)])


def _shards(value: Any, shards: int, shard_of_rank: Sequence[int]) -> Any:
    if isinstance(value, (PerRank, Broadcast)):
        return value
    kind = kind_of(value)
    if kind is None:
        return Broadcast(value)
    pieces = kind.split(value, shards)
    return PerRank(pieces[shard] for shard in shard_of_rank)
