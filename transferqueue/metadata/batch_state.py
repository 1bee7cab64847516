"""What a `BatchMeta` is made of, and the checks of what users give for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from transferqueue.metadata.copying import copy_row_dicts
from transferqueue.metadata.field_schema import FieldSchema
from transferqueue.metadata.row_shapes import RowShapes

if TYPE_CHECKING:
    from numpy.typing import NDArray

RowDict = dict[str, Any]
AnySchema = Mapping[str, Any] | FieldSchema
State = TypeVar("State", bound="BatchState")


class BatchState:
    """The state of a `BatchMeta`, per-row parts in the shortest form that says it."""

    __slots__ = (
        "_backend_meta",  # list of dicts, None while all are empty; so is _custom_meta
        "_custom_meta",
        "_extra_info",
        "_index_list",  # made from _indexes when first asked for; so is _partition_list
        "_indexes",  # int64 [rows], read-only, may be shared between batches
        "_pads",  # bool [rows], read-only, None without pads
        "_partition_codes",  # int32 [rows] into _partition_names, None with one partition
        "_partition_list",
        "_partition_names",
        "_row_shapes",  # field -> RowShapes, only those not in the index
        "_schemas",  # field -> FieldSchema (immutable, shared between batches)
        "_shed_rows",  # set on the answer to a put only
        "_status",  # int8 [rows], None while every row has _status_fill
        "_status_fill",
        "session",
    )

    _backend_meta: list[RowDict] | None
    _custom_meta: list[RowDict] | None
    _extra_info: dict[str, Any]
    _index_list: list[int] | None
    _indexes: NDArray[np.int64]
    _pads: NDArray[np.bool_] | None
    _partition_codes: NDArray[np.int32] | None
    _partition_list: list[str] | None
    _partition_names: tuple[str, ...]
    _row_shapes: dict[str, RowShapes]
    _schemas: dict[str, FieldSchema]
    _shed_rows: int
    _status: NDArray[np.int8] | None
    _status_fill: int
    session: str | None

    @property
    def size(self) -> int:
        """Number of rows, pads included."""
        return len(self._indexes)

    @property
    def shed_rows(self) -> int:
        """Of the answer to a put: rows that limits of the partition removed for it, or of it; not shipped."""
        return getattr(self, "_shed_rows", 0)

    def __len__(self) -> int:
        return len(self._indexes)


def ready_rows(
    kind: type[State], indexes: NDArray[np.int64], partition: str, schemas: dict[str, FieldSchema], session: str | None
) -> State:
    """See `BatchMeta.of_ready_rows`."""
    new = object.__new__(kind)
    new._indexes = indexes
    new._partition_names = (partition,)
    new._schemas = schemas
    new._row_shapes = {}
    new._status_fill = 1
    new._extra_info = {}
    new.session = session
    new._index_list = new._partition_codes = new._partition_list = new._status = new._pads = None
    new._custom_meta = new._backend_meta = None
    return new


def is_plain(batch: BatchState) -> bool:
    """Whether all rows are of one partition and in one state, with nothing said of single rows or of the whole."""
    return (
        len(batch._partition_names) == 1
        and batch._partition_codes is None
        and batch._status is None
        and batch._pads is None
        and batch._custom_meta is None
        and batch._backend_meta is None
        and not batch._extra_info
        and not batch._row_shapes
    )


def checked_schemas(schemas: Mapping[str, AnySchema], size: int) -> tuple[dict[str, FieldSchema], dict[str, RowShapes]]:
    """(field -> `FieldSchema`, field -> row shapes where they were given)."""
    plain = {name: FieldSchema.of(schema) for name, schema in schemas.items()}
    row_shapes: dict[str, RowShapes] = {}
    for name, schema in schemas.items():
        # By iteration: asking another batch's schema for the entry itself could read the index.
        if isinstance(schema, FieldSchema) or "per_sample_shapes" not in list(schema):
            continue
        shapes = schema["per_sample_shapes"]
        if shapes is None:
            continue
        if len(shapes) != size:
            raise ValueError(f"field {name!r}: {len(shapes)} per_sample_shapes do not match {size} rows")
        row_shapes[name] = RowShapes.of(shapes)
    return plain, row_shapes


def checked_status(status: Any, size: int) -> tuple[NDArray[np.int8] | None, int]:
    """(int8 [rows] or `None`, the value of all rows in that case). `None` means that no row is ready."""
    if status is None:
        return None, 0
    array = np.array(status, dtype=np.int8)
    if array.ndim == 2:
        array = ((array == 1).all(axis=1) & (array.shape[1] > 0)).astype(np.int8)
    if array.shape != (size,):
        raise ValueError(f"production_status of shape {array.shape} does not match {size} rows")
    return array, 1


def checked_row_dicts(rows: Sequence[Mapping[str, Any]] | None, size: int, what: str) -> list[RowDict] | None:
    """A deep copy of one dict per row; `None` stands for all empty."""
    if not rows:
        return None
    if len(rows) != size:
        raise ValueError(f"{what}: {len(rows)} dicts do not match {size} rows")
    return copy_row_dicts(rows)


def take_row_dicts(rows: list[RowDict] | None, selection: slice | NDArray[np.int64]) -> list[RowDict] | None:
    if rows is None:
        return None
    return copy_row_dicts(
        rows[selection] if isinstance(selection, slice) else [rows[position] for position in selection.tolist()]
    )
