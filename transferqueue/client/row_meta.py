"""Metadata of rows, read from the index: which fields they have, of which types, and whether all are there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from transferqueue.codec import schema_dict
from transferqueue.metadata import BatchMeta, FieldSchema

if TYPE_CHECKING:
    from transferqueue._native import Resolved

Indexes = npt.NDArray[np.int64]
Ready = npt.NDArray[np.bool_]


class Coverage:
    """Which of the requested rows have which fields, of one resolution.

    Attributes:
        rows: number of requested rows.
        indexes: their global indexes.
    """

    def __init__(self, resolved: Resolved) -> None:
        self._resolved = resolved
        self.indexes: Indexes = resolved.indexes
        self.rows = len(self.indexes)
        self._position = {name: number for number, name in enumerate(resolved.fields)}
        self._masks: dict[int, Ready] = {}
        self._complete: bool = resolved.complete

    def is_complete(self, fields: Sequence[str]) -> bool:
        """Whether every requested row exists and has all `fields`, of which there is one, known without a look at rows.
        False may mean only that other fields were resolved with them, of which a row lacks one."""
        return self._complete and bool(fields) and all(field in self._position for field in fields)

    def mask(self, field: str) -> Ready:
        """bool [rows]."""
        number = self._position.get(field)
        if number is None:
            return np.zeros(self.rows, dtype=np.bool_)
        shared = self._resolved.piece_list_id(number)
        if shared not in self._masks:
            self._masks[shared] = self._mask(number)
        return self._masks[shared]

    def _mask(self, number: int) -> Ready:
        pieces = self._resolved.pieces(number)
        if int(pieces[:, 1].sum()) == self.rows:
            return np.ones(self.rows, dtype=np.bool_)
        edges = np.zeros(self.rows + 1, dtype=np.int64)
        np.add.at(edges, pieces[:, 0], 1)
        np.add.at(edges, pieces[:, 0] + pieces[:, 1], -1)
        covered: Ready = np.cumsum(edges[:-1]) > 0
        return covered

    def ready(self, fields: Sequence[str]) -> Ready:
        """bool [rows]: rows that have all `fields`; none without fields."""
        if not fields:
            return np.zeros(self.rows, dtype=np.bool_)
        ready = np.ones(self.rows, dtype=np.bool_)
        for field in fields:
            ready &= self.mask(field)
        return ready

    def on_every_row(self) -> list[str]:
        """Fields that all requested rows have."""
        if self.rows and self._complete:
            return list(self._position)
        return [name for name in self._resolved.fields if self.rows and bool(self.mask(name).all())]

    def missing(self, fields: Sequence[str]) -> dict[str, list[int]]:
        """Field -> positions of rows that lack it; only fields that some row lacks."""
        if self.is_complete(fields):
            return {}
        lacking = {field: np.flatnonzero(~self.mask(field)).tolist() for field in fields}
        return {field: rows for field, rows in lacking.items() if rows}

    def schema(self, field: str) -> FieldSchema:
        """The type of a field over all requested rows; without type when no row has it."""
        number = self._position.get(field)
        if number is None:
            return FieldSchema()
        merged: FieldSchema | None = None
        for raw in self._resolved.schemas(number):
            schema = stored_schema(raw)
            merged = schema if merged is None else merge_schemas(merged, schema)
        return merged or FieldSchema()


@lru_cache(maxsize=4096)
def stored_schema(raw: bytes) -> FieldSchema:
    """What metadata says of a stored field; cached, since a training loop has the same few types for ever."""
    return FieldSchema.of(schema_dict(raw))


def merge_schemas(left: FieldSchema, right: FieldSchema) -> FieldSchema:
    """The type of rows of both; without dtype where the dtypes differ."""
    merged = left.merged(right)
    if left.dtype != right.dtype:
        return FieldSchema(None, merged.shape, merged.is_nested, merged.is_non_tensor)
    return merged


def batch_meta(
    session: str,
    partition: str,
    indexes: Indexes,
    schemas: Mapping[str, FieldSchema],
    ready: Ready | bool,
    tags: Sequence[Mapping[str, Any]] | None = None,
) -> BatchMeta:
    """A BatchMeta of rows of one partition."""
    custom_meta = tags if tags is not None and any(tags) else None
    all_ready = ready is True or (isinstance(ready, np.ndarray) and bool(ready.all()))
    status = None if all_ready or isinstance(ready, bool) else ready.astype(np.int8)
    meta = BatchMeta(indexes, partition, production_status=status, custom_meta=custom_meta, session=session)
    # So a batch whose rows are all ready says that once, and not row by row.
    meta.add_schema(schemas, set_all_ready=all_ready)
    return meta


def new_rows_meta(session: str, partition: str, indexes: Indexes, types: dict[str, FieldSchema]) -> BatchMeta:
    """A BatchMeta of rows just made, which have all their fields. Takes over `indexes` (read-only) and `types`."""
    return BatchMeta.of_ready_rows(indexes, partition, types, session)


def meta_of(
    session: str,
    partition: str,
    coverage: Coverage,
    fields: Sequence[str],
    tags: Sequence[Mapping[str, Any]] | None = None,
) -> BatchMeta:
    """A BatchMeta of the resolved rows with `fields`, ready where a row has all of them."""
    schemas = {field: coverage.schema(field) for field in fields}
    if not coverage.is_complete(fields):
        return batch_meta(session, partition, coverage.indexes, schemas, coverage.ready(fields), tags)
    # The path of a waiter that was just woken: what it does runs on cold caches.
    coverage.indexes.flags.writeable = False
    meta = BatchMeta.of_ready_rows(coverage.indexes, partition, schemas, session)
    if tags is not None and any(tags):
        meta.custom_meta = tags
    return meta
