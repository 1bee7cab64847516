"""Who writes a method's output back: one small declaration per dispatch mode, asked by the bridge on the rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from transferqueue.workers.megatron_layout import answers_for_its_shard
from transferqueue.workers.ranks import rank_of


class WriteBack(Protocol):
    """Whether the rank that `owner` (the object whose method ran) lives on collects, that is writes and reports."""

    def collects(self, owner: object) -> bool: ...


@dataclass(frozen=True)
class OneRankWrites:
    """All ranks see the same rows: one of them writes."""

    rank: int = 0

    def collects(self, owner: object) -> bool:
        return rank_of(owner) == self.rank


@dataclass(frozen=True)
class EveryRankWrites:
    """Each rank has rows of its own and writes those."""

    def collects(self, owner: object) -> bool:
        return True


@dataclass(frozen=True)
class CollectMaskWrites:
    """Ranks share shards: of each DP rank, the one that registered with `is_collect=True` for the mesh writes."""

    mesh_name: str

    def collects(self, owner: object) -> bool:
        query = getattr(owner, "query_collect_info", None)
        if query is None:
            raise TypeError(
                f"mesh {self.mesh_name!r} decides who writes back, but {type(owner).__name__} is no Worker: "
                "it has no query_collect_info"
            )
        return bool(query(self.mesh_name))


@dataclass(frozen=True)
class MegatronWrites:
    """Of the ranks of a replica, the one with TP rank 0, CP rank 0 and the last PP rank writes; with `pp_as_dp` each
    pipeline stage is a replica."""

    pp_as_dp: bool = False

    def collects(self, owner: object) -> bool:
        place = getattr(owner, "get_megatron_rank_info", None)
        sizes = getattr(owner, "get_megatron_global_info", None)
        if place is None or sizes is None:
            raise TypeError(
                "a Megatron dispatch mode asks each rank for its TP, PP and CP rank, but "
                f"{type(owner).__name__} has no get_megatron_rank_info and get_megatron_global_info"
            )
        return answers_for_its_shard(place(), sizes(), self.pp_as_dp)
