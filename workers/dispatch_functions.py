"""The dispatch and collect functions of the predefined modes.

A dispatch function turns the caller's arguments into `PerRank` or `Broadcast` values; a collect function turns the
outputs of all ranks, in rank order, into the caller's result. The splitting modes split batches (metadata, DataProto,
TensorDicts) into consecutive rows and refuse every other argument that is neither a `Broadcast` nor a `PerRank`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from transferqueue.workers.arguments import Broadcast, PerRank
from transferqueue.workers.errors import DispatchError, DispatchRefusedError
from transferqueue.workers.group_view import GroupView, collecting_ranks, dp_size, world_ranks
from transferqueue.workers.megatron_layout import megatron_joined_ranks, megatron_shard_of_rank, megatron_shards
from transferqueue.workers.row_batch import join_outputs, kind_of
from transferqueue.workers.splitting import Dispatched, each_argument, split_arguments


def dispatch_one_to_all(group: GroupView, *args: Any, **kwargs: Any) -> Dispatched:
    """Every rank gets every argument whole."""
    return each_argument(
        lambda _, value: value if isinstance(value, (PerRank, Broadcast)) else Broadcast(value), args, kwargs
    )


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
    """Each argument is a list or tuple with one element per rank. `DispatchError` for anything else."""
    return _listed(args, kwargs, "DP_COMPUTE", world_ranks(group), group.world_size, "ranks")


def collect_dp_compute(group: GroupView, output: Any) -> Any:
    """The outputs of all ranks in rank order."""
    return output


def dispatch_dp_compute_data_proto(group: GroupView, *args: Any, **kwargs: Any) -> Dispatched:
    """Batches split over all ranks, the first ones a row longer where it does not divide."""
    return split_arguments(args, kwargs, group.world_size, world_ranks(group))


def dispatch_dp_compute_data_proto_with_func(group: GroupView, *args: Any, **kwargs: Any) -> Dispatched:
    """As `dispatch_dp_compute_data_proto`, with a function as first argument, which every rank gets."""
    function = args[0] if args else None
    if isinstance(function, Broadcast):
        function = function.value
    if not callable(function) or kind_of(function) is not None:
        found = f"is of type {type(function).__name__}" if args else "is missing"
        raise DispatchError.about(
            0, f"{found}; with DP_COMPUTE_PROTO_WITH_FUNC the first argument is the function that every rank gets"
        )
    split, named = split_arguments(args[1:], kwargs, group.world_size, world_ranks(group), first=1)
    return (Broadcast(function), *split), named


def collect_dp_compute_data_proto(group: GroupView, output: Any) -> Any:
    """The batches of all ranks joined in rank order; a list when the outputs are no batches."""
    return join_outputs(output)


def dispatch_lazy_compute_data_proto(mesh_name: str, group: GroupView, *args: Any, **kwargs: Any) -> Dispatched:
    """Batches split over the DP ranks of a mesh; the ranks of one replica get the same shard."""
    return split_arguments(args, kwargs, dp_size(group, mesh_name), group.dispatch_info(mesh_name))


def collect_lazy_compute_data_proto(mesh_name: str, group: GroupView, output: Any) -> Any:
    """The batches of the collecting ranks joined in DP-rank order; a list of theirs when they are no batches."""
    return _joined(output, collecting_ranks(group, mesh_name))


def dispatch_nd_compute(
    dp_rank_mapping: Sequence[int], dp_size: int, group: GroupView, *args: Any, **kwargs: Any
) -> Dispatched:
    """Each argument is a list with one element per DP rank; `dp_rank_mapping` says which of them each rank gets."""
    return _listed(args, kwargs, "this mode", dp_rank_mapping, dp_size, "DP ranks")


def collect_nd_compute(collect_mask: Sequence[bool], group: GroupView, output: Any) -> Any:
    """The outputs of the ranks where `collect_mask` is True, in rank order."""
    return [one for one, collects in zip(output, collect_mask, strict=True) if collects]


def dispatch_nd_compute_dataproto(
    dp_rank_mapping: Sequence[int], dp_size: int, group: GroupView, *args: Any, **kwargs: Any
) -> Dispatched:
    """Batches split into `dp_size` shards; `dp_rank_mapping` says which of them each rank gets."""
    return split_arguments(args, kwargs, dp_size, dp_rank_mapping)


def collect_nd_compute_dataproto(collect_mask: Sequence[bool], group: GroupView, output: Any) -> Any:
    """As `collect_nd_compute`, the batches joined."""
    return _joined(output, [rank for rank, collects in enumerate(collect_mask) if collects])


def dispatch_megatron_compute(group: GroupView, *args: Any, **kwargs: Any) -> Dispatched:
    """Each argument is a list with one element per DP rank, which all ranks of that replica get."""
    return _megatron_listed(False, group, args, kwargs)


def collect_megatron_compute(group: GroupView, output: Any) -> Any:
    """The outputs of TP rank 0, CP rank 0 and the last PP rank of every replica, in DP-rank order."""
    return [output[rank] for rank in megatron_joined_ranks(False, group)]


def dispatch_megatron_compute_data_proto(group: GroupView, *args: Any, **kwargs: Any) -> Dispatched:
    """Batches split over the DP ranks; all TP, PP and CP ranks of a replica get the same shard."""
    return _megatron_split(False, group, args, kwargs)


def collect_megatron_compute_data_proto(group: GroupView, output: Any) -> Any:
    """As `collect_megatron_compute`, the batches joined."""
    return _joined(output, megatron_joined_ranks(False, group))


def dispatch_megatron_pp_as_dp(group: GroupView, *args: Any, **kwargs: Any) -> Dispatched:
    """Each argument is a list with one element per DP rank and pipeline stage (``dp_rank * pp_size + pp_rank``)."""
    return _megatron_listed(True, group, args, kwargs)


def collect_megatron_pp_as_dp(group: GroupView, output: Any) -> Any:
    """The outputs of TP rank 0 and CP rank 0 of every DP rank and pipeline stage, in the order of the arguments."""
    return [output[rank] for rank in megatron_joined_ranks(True, group)]


def dispatch_megatron_pp_as_dp_data_proto(group: GroupView, *args: Any, **kwargs: Any) -> Dispatched:
    """Batches split over the DP ranks and, within them, over the pipeline stages."""
    return _megatron_split(True, group, args, kwargs)


def collect_megatron_pp_as_dp_data_proto(group: GroupView, output: Any) -> Any:
    """As `collect_megatron_pp_as_dp`, the batches joined."""
    return _joined(output, megatron_joined_ranks(True, group))


def refuse_direct_rollout_call(group: GroupView, *args: Any, **kwargs: Any) -> NoReturn:
    """`DIRECT_ROLLOUT_METHOD` marks what a rollout engine calls on the actors themselves. `DispatchRefusedError`."""
    raise DispatchRefusedError(
        "a method with DIRECT_ROLLOUT_METHOD is called by the rollout engine on the rank's actor directly "
        "(group.workers[rank].method.remote(...)); a call on the group has no meaning for it and is refused"
    )


def _joined(output: Any, ranks: Sequence[int]) -> Any:
    return join_outputs([output[rank] for rank in ranks], ranks)


def _megatron_split(pp_as_dp: bool, group: GroupView, args: Sequence[Any], kwargs: dict[str, Any]) -> Dispatched:
    return split_arguments(args, kwargs, megatron_shards(pp_as_dp, group), megatron_shard_of_rank(pp_as_dp, group))


def _megatron_listed(pp_as_dp: bool, group: GroupView, args: Sequence[Any], kwargs: dict[str, Any]) -> Dispatched:
    name = "MEGATRON_PP_AS_DP" if pp_as_dp else "MEGATRON_COMPUTE"
    shards = megatron_shards(pp_as_dp, group)
    return _listed(args, kwargs, name, megatron_shard_of_rank(pp_as_dp, group), shards, "shards")


def _listed(
    args: Sequence[Any], kwargs: dict[str, Any], mode: str, shard_of_rank: Sequence[int], shards: int, what: str
) -> Dispatched:
    def per_rank(argument: int | str, value: Any) -> Any:
        if isinstance(value, (Broadcast, PerRank)):
            return value
        if not isinstance(value, (list, tuple)) or len(value) != shards:
            found = f"{len(value)} elements" if isinstance(value, (list, tuple)) else type(value).__name__
            raise DispatchError.about(
                argument,
                f"is no list that {mode} can spread: it takes a list with one element for each of the {shards} {what}, "
                f"got {found}; use Broadcast(value) for one that all ranks share",
            )
        return PerRank(value[shard] for shard in shard_of_rank)

    return each_argument(per_rank, args, kwargs)
