"""Rows rewritten into one block: scattered ones for `coalesce` and `Coalescer`, those of sparse blocks for `Compactor`.

Published by compare-and-set: a cell changes only if it still names what was copied, so whatever a put or a clear did
meanwhile stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from torch.utils.dlpack import from_dlpack

from transferqueue._native import RAGGED
from transferqueue.codec.encoded_field import EncodedField, place
from transferqueue.codec.schema import read_schema

if TYPE_CHECKING:
    from transferqueue._native import Reservation, Resolved, Store


class Rewriting:
    """The fields of some resolved rows that a rewriting brings together.

    Args:
        whole: also the fields that lie in one piece already.

    Attributes:
        nbytes: size of the new block; 0 when there is nothing to do.
    """

    def __init__(self, resolved: Resolved, fields: Sequence[str], *, whole: bool = False) -> None:
        self._resolved = resolved
        scattered = [number for number in range(len(fields)) if len(resolved.pieces(number)) > (0 if whole else 1)]
        self._movable = [(number, field) for number in scattered if (field := _gathered(resolved, number)) is not None]
        self.nbytes = place([field for _, field in self._movable]) if self._movable else 0

    def write(
        self,
        store: Store,
        reservation: Reservation,
        lock_timeout_s: float | None = None,
        *,
        compaction: bool = False,
    ) -> int:
        """Copies into `reservation` (of `nbytes`) and publishes. Returns how many cells moved; the rest had changed.

        Args:
            lock_timeout_s: see `Store.reserve`.
            compaction: counted as such, and the leases are dropped between the two, so that a block that loses its last
                cell is free at once.
        """
        for number, field in self._movable:
            writes = field.placed_writes()
            if writes:
                reservation.copy_in(writes)
            if not field.data_nbytes:
                continue
            pieces = self._resolved.pieces(number)
            if reservation.spilled:
                gathered = np.empty(field.data_nbytes, np.uint8)
                self._resolved.copy_rows(number, pieces, gathered.ctypes.data, field.data_nbytes)
                reservation.copy_in([(field.data_offset, gathered.ctypes.data, field.data_nbytes)])
            else:
                target = from_dlpack(reservation.writable(field.data_offset, field.data_nbytes))
                self._resolved.copy_rows(number, pieces, target.data_ptr(), field.data_nbytes)
        if compaction:
            self._resolved.release()
        layouts = [field.layout() for _, field in self._movable]
        return store.move(self._resolved, reservation, layouts, compaction=compaction, lock_timeout_s=lock_timeout_s)


def _gathered(resolved: Resolved, number: int) -> EncodedField | None:
    """The field as it lies in the new block; None when its rows are of different types."""
    pieces = resolved.pieces(number)
    layouts = [resolved.layout(number, block) for block in dict.fromkeys(pieces[:, 2].tolist())]
    if any(layout is None for layout in layouts):
        return None
    known: list[Any] = layouts
    schemas = [read_schema(layout.schema) for layout in known]
    if len({(schema.key, schema.path, schema.inner_batch) for schema in schemas}) > 1:
        return None
    # Of rows that describe themselves some puts may have needed pickle: the joint schema says so.
    schema = next((layout.schema for layout, read in zip(known, schemas, strict=True) if read.pickled), known[0].schema)
    sizes = resolved.row_nbytes(number, pieces)
    total = int(sizes.sum())
    if known[0].kind != RAGGED:
        return EncodedField(known[0].name, schema, data_nbytes=total, row_nbytes=known[0].row_nbytes)
    offsets = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return EncodedField(known[0].name, schema, data_nbytes=total, offsets=offsets)
