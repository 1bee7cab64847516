"""Who writes a method's output back: one small declaration per dispatch mode, asked by the bridge on the rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

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
