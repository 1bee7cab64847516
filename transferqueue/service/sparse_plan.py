"""Blocks that rows name in part only, and which of them a compaction empties."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from transferqueue._native import Store

Indexes = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Batch:
    """Cells that can lie in one block: these rows (ascending) x fields, each field of one type."""

    partition: str
    fields: list[str]
    rows: Indexes


class SparsePlan:
    """One look of `Store.sparse_blocks`: at blocks in memory, or with `spilled` on disk, of which not all lives or,
    with `within`, at all in that stretch. What it found may be gone by the time it is moved; the move finds out.

    Attributes:
        next: where the next look goes on; 0: this one came to the end.
        refs, offsets, nbytes, live_nbytes: of each block: its name, place, size, and what rows name of it (exact).
        headroom, leased: it lies in the room that only compaction takes; somebody reads it.
    """

    def __init__(
        self, store: Store, after: int = 0, within: tuple[int, int] | None = None, spilled: bool = False
    ) -> None:
        self.next, blocks, self._groups, self._shapes, self._ranges = store.sparse_blocks(after, within, spilled)
        self.refs, self.offsets, self.nbytes, self.live_nbytes = blocks[:, 0], blocks[:, 1], blocks[:, 2], blocks[:, 3]
        self.headroom, self.leased = blocks[:, 4].astype(bool), blocks[:, 5].astype(bool)

    def sparse(self, below: float) -> Indexes:
        """Positions of the blocks of which less than the share `below` lives, and of those in the headroom; leased
        ones left out, since moving their rows would free nothing yet. The sparsest first: most room for a copied byte;
        those of the headroom last, when there is other room.
        """
        share = self.live_nbytes / self.nbytes
        chosen = np.flatnonzero(((share < below) | self.headroom) & ~self.leased)
        return chosen[np.lexsort((share[chosen], self.headroom[chosen]))]

    def largest_first(self) -> list[Indexes]:
        """Positions of all blocks, one by one: the order in which most find room."""
        return list(np.argsort(-self.nbytes, kind="stable")[:, np.newaxis])

    def gain_nbytes(self, blocks: Indexes) -> int:
        """What emptying them would free, alignment apart."""
        return int(self.nbytes[blocks].sum() - self.live_nbytes[blocks].sum())

    def portions(self, blocks: Indexes, live_nbytes: int) -> Iterator[Indexes]:
        """`blocks` in order, in portions of which about so many bytes live; at least one block each."""
        begin, living = 0, 0
        for end, nbytes in enumerate(self.live_nbytes[blocks].tolist()):
            if end > begin and living + nbytes > live_nbytes:
                yield blocks[begin:end]
                begin, living = end, 0
            living += nbytes
        if begin < len(blocks):
            yield blocks[begin:]

    def batches(self, blocks: Indexes | Sequence[int]) -> list[Batch]:
        """All that lives of these blocks."""
        if not len(self._ranges):
            return []
        shapes = self._shapes[self._ranges[:, 0]]
        ranges = self._ranges[np.isin(shapes[:, 0], blocks)]
        groups = self._shapes[ranges[:, 0], 1]
        found = []
        for group in dict.fromkeys(groups.tolist()):
            partition, fields = self._groups[group]
            found.append(Batch(partition, fields, _rows(ranges[groups == group])))
        return found


def _rows(ranges: Indexes) -> Indexes:
    first, count = ranges[:, 1], ranges[:, 2]
    ends = np.cumsum(count)
    rows = np.arange(int(ends[-1]), dtype=np.int64) + np.repeat(first - (ends - count), count)
    return np.unique(rows)
