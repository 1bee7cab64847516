"""Where the rows of a batch go in a group whose ranks have tensor, pipeline and context parallel ranks.

The ranks say where they stand (`get_megatron_rank_info`, `get_megatron_global_info`). The ranks of a replica share a
shard. Of each replica the rank with TP rank 0, CP rank 0 and the last PP rank answers, which is where the output of a
pipeline is. With `pp_as_dp` every pipeline stage is a replica of its own, for work that needs no pipeline.
"""

from __future__ import annotations

from typing import Any

from transferqueue.workers.group_view import GroupView, one_rank_per_shard, shard_count


def megatron_shard_of_rank(pp_as_dp: bool, group: GroupView) -> list[int]:
    """The shard that each rank works on."""
    ranks, sizes = group.megatron_info()
    if pp_as_dp:
        return [info.dp_rank * sizes.pp_size + info.pp_rank for info in ranks]
    return [info.dp_rank for info in ranks]


def megatron_shards(pp_as_dp: bool, group: GroupView) -> int:
    """Into how many shards the rows go: the DP size, times the PP size where stages are replicas.

    Raises `ValueError` when the ranks' places leave a gap.
    """
    return shard_count(_name(pp_as_dp), megatron_shard_of_rank(pp_as_dp, group))


def megatron_joined_ranks(pp_as_dp: bool, group: GroupView) -> list[int]:
    """The rank that answers for each shard, in the order of the rows. `SchemaMismatchError` unless it is one each."""
    ranks, sizes = group.megatron_info()
    collects = [answers_for_its_shard(info, sizes, pp_as_dp) for info in ranks]
    return one_rank_per_shard(_name(pp_as_dp), megatron_shard_of_rank(pp_as_dp, group), collects)


def answers_for_its_shard(rank_info: Any, sizes: Any, pp_as_dp: bool) -> bool:
    """Whether the rank at that place collects for the ranks that share its shard."""
    last_stage = pp_as_dp or rank_info.pp_rank == sizes.pp_size - 1
    return bool(rank_info.tp_rank == 0 and rank_info.cp_rank == 0 and last_stage)


def _name(pp_as_dp: bool) -> str:
    return "Megatron ranks (DP x PP)" if pp_as_dp else "Megatron ranks"
