"""What dispatch and collect functions may ask of a worker group: who shares a shard, and who answers for it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol

from transferqueue.errors import SchemaMismatchError


class GroupView(Protocol):
    """The part of a worker group that a dispatch or collect function sees."""

    @property
    def world_size(self) -> int: ...

    def dispatch_info(self, mesh_name: str) -> list[int]:
        """The DP rank of every rank in that mesh."""
        ...

    def collect_info(self, mesh_name: str) -> list[bool]:
        """The collect mask: whether each rank collects for that mesh."""
        ...

    def megatron_info(self) -> tuple[list[Any], Any]:
        """The `DistRankInfo` of every rank, and the `DistGlobalInfo` of the group."""
        ...


def world_shards(group: GroupView) -> int:
    """One shard for every rank."""
    return group.world_size


def world_ranks(group: GroupView) -> range:
    """Rank i works on shard i and answers for it."""
    return range(group.world_size)


def dp_size(group: GroupView, mesh_name: str) -> int:
    """How many shards the mesh has. `ValueError` when the ranks' DP ranks are not 0 to n-1 without a gap."""
    return shard_count(f"mesh {mesh_name!r}", group.dispatch_info(mesh_name))


def collecting_ranks(group: GroupView, mesh_name: str) -> list[int]:
    """The rank that collects for each DP rank, in DP-rank order, which is the order of the rows.

    Raises `SchemaMismatchError` when a DP rank has none (its rows would be lost) or several (they would come twice).
    """
    return one_rank_per_shard(f"mesh {mesh_name!r}", group.dispatch_info(mesh_name), group.collect_info(mesh_name))


def shard_count(layout: str, shard_of_rank: Sequence[int]) -> int:
    """How many shards there are; `layout` says in an error what is laid out so."""
    return _shard_count(layout, tuple(shard_of_rank))


def one_rank_per_shard(layout: str, shard_of_rank: Sequence[int], collects: Sequence[bool]) -> list[int]:
    """The collecting rank of each shard, in the order of the shards."""
    return list(_one_rank_per_shard(layout, tuple(shard_of_rank), tuple(collects)))


# Worked out anew for every call, these took a tenth of the time of a dispatch and collect.


@lru_cache(maxsize=256)
def _shard_count(layout: str, shard_of_rank: tuple[int, ...]) -> int:
    size = max(shard_of_rank) + 1
    if set(shard_of_rank) != set(range(size)):
        raise ValueError(
            f"{layout}: the ranks registered DP ranks {list(shard_of_rank)}; each of 0 to {size - 1} must be there, "
            "or the rows of the missing ones would be lost"
        )
    return size


@lru_cache(maxsize=256)
def _one_rank_per_shard(layout: str, shard_of_rank: tuple[int, ...], collects: tuple[bool, ...]) -> tuple[int, ...]:
    collectors: list[list[int]] = [[] for _ in range(shard_count(layout, shard_of_rank))]
    for rank, (shard, asked) in enumerate(zip(shard_of_rank, collects, strict=True)):
        if asked:
            collectors[shard].append(rank)
    for shard, ranks in enumerate(collectors):
        if len(ranks) != 1:
            raise SchemaMismatchError(
                f"{layout}: DP rank {shard} has {len(ranks)} collecting ranks {ranks}; register exactly "
                "one of each replica with is_collect=True",
                expected=1,
                found=len(ranks),
            )
    return tuple(ranks[0] for ranks in collectors)
