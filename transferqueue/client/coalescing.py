"""Rewriting scattered rows into one block, so that every later reader gets views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from torch.utils.dlpack import from_dlpack

from transferqueue._native import RAGGED
from transferqueue.aio import asynchronous
from transferqueue.allocation import give_up
from transferqueue.client.conditions import WaitCalls
from transferqueue.client.core import as_indexes, by_partition, check_batch_meta, check_names
from transferqueue.codec.encoded_field import EncodedField, place
from transferqueue.codec.schema import read_schema
from transferqueue.metadata import BatchMeta
from transferqueue.waiting import Steps, blocking

if TYPE_CHECKING:
    from transferqueue._native import Resolved


class CoalesceCalls(WaitCalls):
    """Part of `TransferQueueClient`."""

    @blocking
    def coalesce(
        self, meta: BatchMeta, fields: str | Sequence[str] | None = None, *, timeout: float | None = None
    ) -> Steps[BatchMeta]:
        """Rewrites the rows of `meta` into one block in its order; one copy, after which reads of it are views.

        A row that is put or cleared meanwhile keeps its new state: a cell is changed only if it still names what was
        copied. Fields whose rows were put with different types stay where they are.

        Args:
            meta: rows; one that is named twice (a pad) is moved once.
            fields: default: those that the metadata names.
            timeout: seconds to wait for room (default ``put.timeout_s``).

        Returns:
            `meta`, which stays valid.

        Raises:
            StaleMetadataError, FieldNotReadyError: as in `get_data`. StorageFullError: no room for the copy.
        """
        self._open()
        self._check_session(check_batch_meta(meta, "coalesce"))
        names = meta.field_names if fields is None else check_names(fields, "fields")
        for partition, indexes in by_partition(meta) if names else []:
            distinct = as_indexes(list(dict.fromkeys(indexes.tolist())))
            resolved = self._look(partition, distinct, names, raise_missing=True)
            assert resolved is not None  # narrowing: it raised
            try:
                scattered = [number for number in range(len(names)) if len(resolved.pieces(number)) > 1]
                movable = [
                    (number, field) for number in scattered if (field := _gathered(resolved, number)) is not None
                ]
                if movable:
                    yield from self._move(resolved, movable, timeout)
            finally:
                resolved.release()
        return meta

    def _move(self, resolved: Resolved, movable: list[tuple[int, EncodedField]], timeout: float | None) -> Steps[int]:
        nbytes = place([field for _, field in movable])
        reservation = yield from self._reserve(nbytes, timeout)
        try:
            for number, field in movable:
                writes = field.placed_writes()
                if writes:
                    reservation.copy_in(writes)
                if field.data_nbytes:
                    target = from_dlpack(reservation.writable(field.data_offset, field.data_nbytes))
                    resolved.copy_rows(number, resolved.pieces(number), target.data_ptr(), field.data_nbytes)
            return self._store.move(resolved, reservation, [field.layout() for _, field in movable])
        except BaseException:
            give_up(reservation)
            raise

    async_coalesce = asynchronous(coalesce)


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
