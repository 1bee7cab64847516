"""What dispatch and collect functions may ask of a worker group."""

from __future__ import annotations

from typing import Protocol

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


def dp_size(group: GroupView, mesh_name: str) -> int:
    """How many shards the mesh has. `ValueError` when the ranks' DP ranks are not 0 to n-1 without a gap."""
    dp_ranks = group.dispatch_info(mesh_name)
    size = max(dp_ranks) + 1
    if set(dp_ranks) != set(range(size)):
        raise ValueError(
            f"mesh {mesh_name!r}: the ranks registered DP ranks {dp_ranks}; each of 0 to {size - 1} must be there, "
            "or the rows of the missing ones would be lost"
        )
    return size


def collecting_ranks(group: GroupView, mesh_name: str) -> list[int]:
    """The rank that collects for each DP rank, in DP-rank order, which is the order of the rows.

    Raises `SchemaMismatchError` when a DP rank has none (its rows would be lost) or several (they would come twice).
    """
    dp_ranks, mask = group.dispatch_info(mesh_name), group.collect_info(mesh_name)
    collectors: list[list[int]] = [[] for _ in range(dp_size(group, mesh_name))]
    for rank, (dp_rank, collects) in enumerate(zip(dp_ranks, mask, strict=True)):
        if collects:
            collectors[dp_rank].append(rank)
    for dp_rank, ranks in enumerate(collectors):
        if len(ranks) != 1:
            raise SchemaMismatchError(
                f"mesh {mesh_name!r}: DP rank {dp_rank} has {len(ranks)} collecting ranks {ranks}; register exactly "
                "one of each replica with is_collect=True",
                expected=1,
                found=len(ranks),
            )
    return [ranks[0] for ranks in collectors]
