"""Names for rows that lie at their partition's home as such, given when another node first wants them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

import numpy as np

from transferqueue.nodes.names import PAYLOAD, Mask, Names, ranges_of

if TYPE_CHECKING:
    from transferqueue._native import Store

# Taken from the store's own row indexes, so many at a time: two transactions.
_TAKEN_AT_ONCE = 1 << 16
_MOST_BLOCKS = 100_000


class BlockNames:
    """Of one agent. A block has the same names while the agent lives and does not forget it. Then it gets others, and
    what was copied under the old ones is of no use any more, and harmless: names are never given twice.

    Args:
        store: of the node.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._guard = threading.Lock()
        self._blocks: OrderedDict[int, tuple[int, int]] = OrderedDict()  # id -> (first name, rows)
        self._next = self._end = 0

    def first_name(self, block_id: int, rows: int) -> int:
        """The name of the block's first row; those of the others follow."""
        with self._guard:
            known = self._blocks.get(block_id)
            if known is not None:
                self._blocks.move_to_end(block_id)
                return known[0]
            if self._end - self._next < rows:
                self._take(max(rows, _TAKEN_AT_ONCE))
            first = self._next
            self._next += rows
            self._blocks[block_id] = first, rows
            if len(self._blocks) > _MOST_BLOCKS:
                self._blocks.popitem(last=False)
            return first

    def blocks(self) -> frozenset[int]:
        """Ids of the blocks that have names."""
        with self._guard:
            return frozenset(self._blocks)

    def forget(self, block_ids: frozenset[int]) -> Names:
        """Those blocks are gone; the names that they had."""
        with self._guard:
            ranges = sorted(self._blocks.pop(block_id) for block_id in block_ids if block_id in self._blocks)
        table = np.array(ranges, dtype=np.int64).reshape(-1, 2)
        return ranges_of(table[:, 0], table[:, 1])

    def known(self, names: Names) -> Mask:
        """bool [names]: which are those of blocks that there are."""
        with self._guard:
            ranges = sorted(self._blocks.values())
        if not ranges or not len(names):
            return np.zeros(len(names), dtype=np.bool_)
        firsts = np.array([first for first, _ in ranges], dtype=np.int64)
        ends = firsts + np.array([rows for _, rows in ranges], dtype=np.int64)
        at = np.searchsorted(firsts, names, side="right") - 1
        return (at >= 0) & (names < ends[np.maximum(at, 0)])

    def __len__(self) -> int:
        return len(self._blocks)

    def _take(self, count: int) -> None:
        # Rows that exist for a moment: what was given out once is never given out again.
        indexes = self._store.publish(PAYLOAD, count=count).indexes
        self._store.clear_rows(PAYLOAD, indexes=indexes)
        self._next, self._end = int(indexes[0]), int(indexes[-1]) + 1
