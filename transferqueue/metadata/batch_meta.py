"""Which rows and which of their fields: what a controller ships instead of the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from transferqueue.errors import name_some
from transferqueue.metadata import batch_merge, batch_state, batch_wire, padding
from transferqueue.metadata.batch_fields import BatchFields
from transferqueue.metadata.batch_rows import checked_indexes, checked_partitions, take_partitions
from transferqueue.metadata.batch_state import (
    AnySchema,
    RowDict,
    checked_row_dicts,
    checked_schemas,
    checked_status,
    take_row_dicts,
)
from transferqueue.metadata.copying import copy_info
from transferqueue.metadata.extra_info import OnConflict, Reduction
from transferqueue.metadata.row_selection import as_permutation, as_positions, chunk_slices, item_positions
from transferqueue.metadata.samples import SampleList
from transferqueue.metadata.user_info import UserInfo

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Self

    from transferqueue.metadata.field_schema import FieldSchema


class BatchMeta(BatchFields, UserInfo):
    """Rows of a session by global index, and the fields they are used with. Holds no payload.

    Every argument is copied. Pickled it takes a few hundred bytes for any number of contiguous rows.

    Args:
        global_indexes: one non-negative int per row.
        partition_ids: one name per row, or one name for all.
        field_schema: field -> mapping with `dtype`, `shape` (of one row), `is_nested`, `is_non_tensor`, and for nested
            fields optionally `per_sample_shapes`; or a `FieldSchema`.
        production_status: int8, 1 where a row is ready: one per row, or rows x fields (a row is then ready where all
            its fields are). Without it no row is ready.
        extra_info: values of the batch as a whole.
        custom_meta: one dict per row.
        _custom_backend_meta: one dict per row, by field, for a storage backend's own use.
        session: name of the session that holds the rows.

    Raises:
        ValueError: lengths that do not agree.
    """

    __slots__ = ()

    def __init__(
        self,
        global_indexes: Sequence[int] | NDArray[np.int64] = (),
        partition_ids: str | Sequence[str] = (),
        field_schema: Mapping[str, AnySchema] | None = None,
        production_status: Any = None,
        extra_info: Mapping[str, Any] | None = None,
        custom_meta: Sequence[Mapping[str, Any]] | None = None,
        _custom_backend_meta: Sequence[Mapping[str, Any]] | None = None,
        *,
        session: str | None = None,
    ) -> None:
        self._indexes = checked_indexes(global_indexes)
        self._index_list = None
        self._partition_names, self._partition_codes = checked_partitions(partition_ids, self.size)
        self._partition_list = None
        self._schemas, self._row_shapes = checked_schemas(field_schema or {}, self.size)
        self._status, self._status_fill = checked_status(production_status, self.size)
        self._extra_info = copy_info(extra_info)
        self._custom_meta = checked_row_dicts(custom_meta, self.size, "custom_meta")
        self._backend_meta = checked_row_dicts(_custom_backend_meta, self.size, "_custom_backend_meta")
        self._pads = None
        self.session = session

    @classmethod
    def of_ready_rows(
        cls, indexes: NDArray[np.int64], partition: str, schemas: dict[str, FieldSchema], session: str | None
    ) -> Self:
        """Rows of one partition, all ready, from parts that are known to be right: nothing is checked or copied.

        `indexes` must be read-only and not negative; `schemas` belongs to the batch from now on.
        """
        return batch_state.ready_rows(cls, indexes, partition, schemas, session)

    @classmethod
    def empty(cls, extra_info: Mapping[str, Any] | None = None) -> Self:
        """A batch without rows and fields."""
        return cls(extra_info=extra_info)

    # Rows

    def __bool__(self) -> bool:
        return len(self._indexes) > 0

    @property
    def global_indexes(self) -> list[int]:
        """One int per row. Made once and kept: changing the list does not change the batch."""
        listed = self._index_list
        if listed is None:
            listed = self._index_list = list(self._indexes.tolist())
        return listed

    @property
    def index_array(self) -> NDArray[np.int64]:
        """The global indexes as a read-only int64 array [rows], not copied."""
        return self._indexes

    @property
    def partition_ids(self) -> list[str]:
        """One name per row. Made once and kept, like `global_indexes`."""
        if self._partition_list is None:
            if self._partition_codes is None:
                self._partition_list = list(self._partition_names) * self.size if self.size else []
            else:
                names = self._partition_names
                self._partition_list = [names[code] for code in self._partition_codes.tolist()]
        return self._partition_list

    @property
    def partition_names(self) -> tuple[str, ...]:
        """The distinct partitions in the order in which rows first name them."""
        return self._partition_names

    @property
    def samples(self) -> SampleList:
        """The rows as read-only views, made when asked for."""
        return SampleList(self)

    # Fields: see `BatchFields`

    def select_fields(self, field_names: Sequence[str]) -> Self:
        """A new batch with the named fields, in that order; unknown names are ignored."""
        names = [field_names] if isinstance(field_names, str) else list(field_names)
        new = self.copy()
        new._schemas = {name: self._schemas[name] for name in names if name in self._schemas}
        new._row_shapes = {name: shapes for name, shapes in self._row_shapes.items() if name in new._schemas}
        if new._backend_meta is not None:
            wanted = set(names)
            new._backend_meta = [
                {key: value for key, value in row.items() if key in wanted or key.startswith("_")}
                for row in new._backend_meta
            ]
        return new

    # States and user values

    @property
    def production_status(self) -> NDArray[np.int8]:
        """int8 [rows], 1 where the row has all fields. Writable; writing changes this batch only."""
        if self._status is None:
            self._status = np.full(self.size, self._status_fill, dtype=np.int8)
        return self._status

    @production_status.setter
    def production_status(self, status: Any) -> None:
        self._status, self._status_fill = checked_status(status, self.size)

    @property
    def is_ready(self) -> bool:
        """There are rows, and all of them are ready."""
        if self.size == 0:
            return False
        return self._status_fill == 1 if self._status is None else bool((self._status == 1).all())

    @property
    def extra_info(self) -> dict[str, Any]:
        return self._extra_info

    @extra_info.setter
    def extra_info(self, info: Mapping[str, Any] | None) -> None:
        self._extra_info = dict(info or {})

    @property
    def custom_meta(self) -> list[RowDict]:
        """One dict per row, which may be changed."""
        if self._custom_meta is None:
            self._custom_meta = [{} for _ in range(self.size)]
        return self._custom_meta

    @custom_meta.setter
    def custom_meta(self, rows: Sequence[Mapping[str, Any]] | None) -> None:
        self._custom_meta = checked_row_dicts(rows, self.size, "custom_meta")

    @property
    def _custom_backend_meta(self) -> list[RowDict]:
        if self._backend_meta is None:
            self._backend_meta = [{} for _ in range(self.size)]
        return self._backend_meta

    @_custom_backend_meta.setter
    def _custom_backend_meta(self, rows: Sequence[Mapping[str, Any]] | None) -> None:
        self._backend_meta = checked_row_dicts(rows, self.size, "_custom_backend_meta")

    # Pads

    @property
    def num_padding(self) -> int:
        return 0 if self._pads is None else int(self._pads.sum())

    @property
    def padding_mask(self) -> NDArray[np.bool_]:
        """A fresh bool array [rows], True where a row is a pad."""
        return padding.full_mask(self._pads, self.size)

    def pad_to_divisor(self, divisor: int) -> Self:
        """A new batch whose size `divisor` divides: the last row repeated, flagged. No rows stay no rows."""
        added = padding.rows_to_add(self.size, divisor)
        if added == 0:
            return self.copy()
        new = self._take(np.concatenate((np.arange(self.size), np.full(added, self.size - 1))))
        new._pads = padding.pad_mask(self._pads, self.size, added)
        return new

    def unpad(self) -> Self:
        """A new batch without the pads."""
        return self.copy() if self._pads is None else self._take(np.flatnonzero(~self._pads))

    # Splitting and joining

    def copy(self) -> Self:
        """A deep copy."""
        return self._take(slice(None))

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.copy()

    def select_samples(self, sample_indices: Sequence[int] | NDArray[Any]) -> Self:
        """A new batch of the rows at those positions, in that order; or where a boolean array is True.

        Raises `ValueError` for a position outside [0, size), `TypeError` for anything but ints.
        """
        return self._take(as_positions(sample_indices, self.size))

    def __getitem__(self, item: int | slice) -> Self:
        """A new batch of one row (`IndexError` outside) or of a slice of rows."""
        return self._take(item_positions(item, self.size, "BatchMeta"))

    def chunk(self, chunks: int) -> list[Self]:
        """`chunks` consecutive pieces; the first ``size % chunks`` are one row longer, some may be empty."""
        return [self._take(rows) for rows in chunk_slices(self.size, chunks)]

    def chunk_by_partition(self) -> list[Self]:
        """One piece per partition, in the order in which rows first name them."""
        codes = self._partition_codes
        if codes is None:
            return [self.copy()] if self.size else []
        return [self._take(np.flatnonzero(codes == code)) for code in range(len(self._partition_names))]

    def reorder(self, indices: Sequence[int] | NDArray[np.int64]) -> None:
        """Puts the row at ``indices[i]`` at position i, in place.

        Raises `ValueError` when `indices` is not a permutation of the rows.
        """
        order = as_permutation(indices, self.size)
        positions = order.tolist()
        custom, backend = self._custom_meta, self._backend_meta
        moved = self._take(order, with_info=False)
        for slot in ("_indexes", "_partition_names", "_partition_codes", "_row_shapes", "_status", "_pads"):
            setattr(self, slot, getattr(moved, slot))
        self._index_list = self._partition_list = None
        self._custom_meta = None if custom is None else [custom[position] for position in positions]
        self._backend_meta = None if backend is None else [backend[position] for position in positions]

    def union(self, other: BatchMeta) -> Self:
        """A new batch of the same rows with the fields of both; `other` wins, a row is ready where both say so.

        An empty side is ignored. Raises `ValueError` where the rows, partitions or sessions differ.
        """
        return batch_merge.union(self, _checked(other, "union"))

    @classmethod
    def concat(
        cls,
        data: Sequence[BatchMeta],
        reduce: Mapping[str, Reduction] | None = None,
        *,
        validate: bool = True,
        on_conflict: OnConflict = "collect",
    ) -> Self:
        """A new batch of all rows, in order. Pieces without rows are skipped; none left gives an empty batch.

        Args:
            data: the pieces; they must have the same fields with the same dtypes. A field that is nested in one
                piece is nested in the result.
            reduce: how values of extra_info become one, by key; see `merge_extra_info`.
            validate: `False` takes the fields of the first piece unchecked.
            on_conflict: values that differ and have no rule are listed (``"collect"``) or refused (``"raise"``).

        Raises:
            ValueError: fields, dtypes or sessions differ (both are named), or values conflict under ``"raise"``.
            TypeError: a piece is something else.
        """
        pieces = [_checked(piece, "concat") for piece in data]
        return batch_merge.concat(cls, pieces, reduce=reduce, validate=validate, on_conflict=on_conflict)

    # Values and pickling

    def __eq__(self, other: object) -> bool:
        return batch_merge.equal(self, other) if isinstance(other, BatchMeta) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        pads = f", num_padding={self.num_padding}" if self._pads is not None else ""
        return (
            f"{type(self).__name__}(size={self.size}, field_names={self.field_names}, is_ready={self.is_ready}, "
            f"partitions=[{name_some(self._partition_names)}], "
            f"global_indexes=[{name_some(self.global_indexes)}]"
            f"{pads}, extra_info={self._extra_info})"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return batch_wire.reduce(self)

    def __getstate__(self) -> tuple[Any, ...]:
        return batch_wire.state(self)

    def __setstate__(self, state: Sequence[Any]) -> None:
        """From the values of `__slots__` in order; arrays that came read-only are copied."""
        batch_wire.set_state(self, state)

    # Internals

    def _take(self, selection: slice | NDArray[np.int64], *, with_info: bool = True) -> Self:
        indexes = self._indexes[selection]
        indexes.flags.writeable = False
        if batch_state.is_plain(self):  # mostly, where a group splits a batch
            piece = batch_state.ready_rows(
                type(self), indexes, self._partition_names[0], dict(self._schemas), self.session
            )
            piece._status_fill = self._status_fill
            return piece
        new = object.__new__(type(self))
        new._indexes = indexes
        new._index_list = new._partition_list = None
        new._partition_names, new._partition_codes = take_partitions(
            self._partition_names, self._partition_codes, selection
        )
        new._schemas = dict(self._schemas)
        new._row_shapes = {name: shapes.take(selection) for name, shapes in self._row_shapes.items()}
        new._status_fill = self._status_fill
        new._status = None if self._status is None else self._status[selection].copy()
        new._pads = padding.take_mask(self._pads, selection)
        new.session = self.session
        new._extra_info = copy_info(self._extra_info) if with_info else {}
        new._custom_meta = take_row_dicts(self._custom_meta, selection) if with_info else None
        new._backend_meta = take_row_dicts(self._backend_meta, selection) if with_info else None
        return new


# Programs build the state tuple by ``[getattr(meta, name) for name in BatchMeta.__slots__]``. The real slots are those
# of the base class; these are the names that the state is made of.
BatchMeta.__slots__ = batch_wire.STATE_NAMES  # type: ignore[assignment]


def _checked(batch: Any, method: str) -> BatchMeta:
    if not isinstance(batch, BatchMeta):
        raise TypeError(f"BatchMeta.{method} takes BatchMeta, not {type(batch).__name__}")
    return batch
