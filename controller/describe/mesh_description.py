"""One mesh of a `GroupDescription`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from transferqueue.controller.describe.rank_description import RankDescription


@dataclass(frozen=True)
class MeshDescription:
    """Of each rank of the group, its DP rank and whether it collects; None for ranks that have not said."""

    name: str
    dp_ranks: tuple[int | None, ...]
    collects: tuple[bool | None, ...]

    @property
    def dp_size(self) -> int:
        """How many shards the mesh has, as far as the ranks have said."""
        return len({dp_rank for dp_rank in self.dp_ranks if dp_rank is not None})

    @property
    def collecting_ranks(self) -> tuple[int, ...]:
        return tuple(rank for rank, collects in enumerate(self.collects) if collects)

    def __str__(self) -> str:
        places = " ".join("?" if dp_rank is None else str(dp_rank) for dp_rank in self.dp_ranks)
        mask = " ".join("?" if collects is None else "x" if collects else "-" for collects in self.collects)
        return f"mesh {self.name!r}: DP size {self.dp_size}; DP rank of each rank: {places}; collects: {mask}"


def meshes_of(ranks: Sequence[RankDescription]) -> tuple[MeshDescription, ...]:
    """The meshes that any of the ranks registered, in the order of their names."""
    reported = [rank.report.meshes if rank.report else {} for rank in ranks]
    names = sorted({name for meshes in reported for name in meshes})
    return tuple(
        MeshDescription(
            name,
            tuple(meshes[name][0] if name in meshes else None for meshes in reported),
            tuple(meshes[name][1] if name in meshes else None for meshes in reported),
        )
        for name in names
    )
