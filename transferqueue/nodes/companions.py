"""Rows that come with those that were asked for, since most of their block comes anyway.

Rows of one put that are picked from here and there are gathered one by one where they are kept and spread one by one
where they come to. From some share of the put on, all of it comes in about the time of the part, and whoever reads the
rest on that node finds it there. (Rows that stand together come as a range, which costs nothing beside its bytes.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from transferqueue.nodes.located import Group
from transferqueue.nodes.names import Mask, ordinals_of
from transferqueue.nodes.naming import BlockNames, groups_of, rows_there

if TYPE_CHECKING:
    from transferqueue._native import Resolved, Store

# Measured, see docs/cluster.md: with fewer rows asked for, bringing all takes longer than bringing those.
SHARE = 0.75
# Rows in longer stretches are a range.
_ROWS_A_STRETCH = 4
_LEAST_ROWS = 16


@dataclass(frozen=True)
class _Block:
    """One of which much is asked for: the index of the row that lies first in it, and how many rows it has."""

    first: int
    rows: int


def add_companions(
    store: Store, partition: str, resolved: Resolved, groups: Sequence[Group], block_names: BlockNames
) -> None:
    """Gives groups of resolved rows, at their home, the rows that may come with them (`Group.more_names` and so on).

    Args:
        store: of the home.
        block_names: see `groups_of`.
    """
    position = {name: number for number, name in enumerate(resolved.fields)}
    for group in groups:
        for block in _much_asked(resolved, position[group.fields[0]]):
            indexes = np.setdiff1d(np.arange(block.first, block.first + block.rows, dtype=np.int64), resolved.indexes)
            found = store.resolve(partition, indexes=indexes, fields=group.fields)
            try:
                # Whoever was cleared or overwritten since is not in the way: only what is whole and as it was put.
                there = np.flatnonzero(_complete(found))
            finally:
                found.release()
            if not len(there):
                continue
            whole = store.resolve(partition, indexes=np.ascontiguousarray(indexes[there]), fields=group.fields)
            try:
                if whole.complete:
                    _add(group, whole, groups_of(whole, group.fields, block_names))
            finally:
                whole.release()


def _much_asked(resolved: Resolved, number: int) -> list[_Block]:
    pieces = resolved.pieces(number)
    found = []
    for block in np.unique(pieces[:, 2]).tolist():
        mine = pieces[pieces[:, 2] == block]
        asked, rows = int(mine[:, 1].sum()), resolved.block_rows(block)
        if rows < _LEAST_ROWS or not SHARE * rows <= asked < rows or len(mine) * _ROWS_A_STRETCH < asked:
            continue
        # The rows of a put have indexes in a row, and lie so. Of other blocks this finds other rows, or none.
        firsts = np.unique(resolved.indexes[mine[:, 0]] - mine[:, 3])
        if len(firsts) == 1 and firsts[0] >= 0:
            found.append(_Block(int(firsts[0]), rows))
    return found


def _complete(resolved: Resolved) -> Mask:
    """bool [rows]: which have all the fields."""
    there = np.ones(resolved.n_rows, dtype=np.bool_)
    for number in range(len(resolved.fields)):
        there &= rows_there(resolved, number)
    return there


def _add(group: Group, whole: Resolved, groups: Sequence[Group]) -> None:
    if (
        len(groups) != 1
        or groups[0].copies != group.copies
        or bool(len(groups[0].home_blocks)) != bool(len(group.home_blocks))
    ):
        return  # they are kept in another way by now
    more = groups[0]
    # Of no node that need not be asked anyway: rows of several were brought together.
    chosen = np.isin(ordinals_of(more.names), ordinals_of(group.names))
    group.more_names = np.concatenate([group.more_names, more.names[chosen]])
    group.more_indexes = np.concatenate([group.more_indexes, whole.indexes[chosen]])
    if len(more.home_blocks):
        group.more_blocks = np.concatenate([group.more_blocks, more.home_blocks[chosen]])
