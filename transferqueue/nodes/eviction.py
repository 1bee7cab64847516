"""Copies of other nodes' payload go first when a put finds no room: they can be had again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from transferqueue._native import DENSE
from transferqueue.nodes.names import KEPT, PAYLOAD, Names, ordinals_of

if TYPE_CHECKING:
    from transferqueue._native import Resolved, Store

_GENERATION_SHIFT = 24  # of a block's ref, as leases name it


def copies_nbytes(store: Store, ordinal: int) -> int:
    """Bytes of the copies that this node has of other nodes' payload."""
    copies = _cached(store, ordinal)
    if not len(copies):
        return 0
    return sum(_blocks(store.resolve(PAYLOAD, indexes=copies, fields=None, lease=False))[0].values())


def evict_copies(store: Store, ordinal: int, nbytes: int) -> int:
    """Clears copies, those that were pulled longest ago first, until about `nbytes` are free; bytes cleared.

    What somebody holds a view of stays: clearing it would free nothing and have it pulled again.
    """
    copies = _cached(store, ordinal)
    if not len(copies):
        return 0
    resolved = store.resolve(PAYLOAD, indexes=copies, fields=None, lease=False)
    leased = {lease["block"] >> _GENERATION_SHIFT for lease in store.leases()}
    sizes, rows = _blocks(resolved)
    freed = 0
    chosen: list[int] = []
    # Ids of blocks ascend in the order in which they were made.
    for block_id in sorted(sizes):
        if freed >= nbytes:
            break
        if block_id not in leased:
            chosen.append(block_id)
            freed += sizes[block_id]
    if chosen:
        cleared = np.unique(
            np.concatenate([copies[first : first + count] for at in chosen for first, count in rows[at]])
        )
        store.clear_rows(PAYLOAD, indexes=cleared)
    return freed


def _cached(store: Store, ordinal: int) -> Names:
    """Copies that are not kept as second ones. In this order: what is kept is marked before it is copied."""
    names = store.production(PAYLOAD, [])[1]
    copies = names[ordinals_of(names) != ordinal]
    kept = store.production(KEPT, [])[1] if len(copies) else copies
    return np.ascontiguousarray(np.setdiff1d(copies, kept) if len(kept) else copies)


def _blocks(resolved: Resolved) -> tuple[dict[int, int], dict[int, list[tuple[int, int]]]]:
    """(block id -> bytes, block id -> stretches of resolved rows in it)."""
    sizes: dict[int, int] = {}
    rows: dict[int, list[tuple[int, int]]] = {}
    seen: set[int] = set()
    for number in range(len(resolved.fields)):
        pieces = resolved.pieces(number)
        shared = resolved.piece_list_id(number)
        for block in dict.fromkeys(pieces[:, 2].tolist()):
            layout = resolved.layout(number, block)
            if layout is not None:
                offsets = 0 if layout.kind == DENSE else 8 * (resolved.block_rows(block) + 1)
                at = resolved.block_id(block)
                sizes[at] = sizes.get(at, 0) + layout.data_nbytes + offsets
        if shared not in seen:
            seen.add(shared)
            for first, count, block, _ in pieces.tolist():
                rows.setdefault(resolved.block_id(block), []).append((first, count))
    return sizes, rows
