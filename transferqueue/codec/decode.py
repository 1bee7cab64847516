"""From resolved rows back to a TensorDict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch

from transferqueue.codec.columns import FieldReader
from transferqueue.codec.dtypes import from_name
from transferqueue.codec.field_tree import nest, new_batch
from transferqueue.codec.jagged_layout import JAGGED, STORED, JaggedViews
from transferqueue.codec.lazy_stack import eager_stack
from transferqueue.codec.mixed import mixed_column
from transferqueue.codec.nested_tensors import jagged_over
from transferqueue.codec.plain_columns import PlainColumns
from transferqueue.codec.row_reader import RowReader
from transferqueue.codec.schema import read_schema
from transferqueue.errors import CorruptSegmentError, FieldNotReadyError, TransferQueueError, name_some

if TYPE_CHECKING:
    from transferqueue import _native
    from transferqueue.codec.plain_columns import PlainField
    from transferqueue.codec.row_reader import Pieces
    from transferqueue.codec.schema import BlockSchema

_Read = TypeVar("_Read")


def decode(
    resolved: _native.Resolved,
    *,
    mode: str,
    copy_below: int,
    allow_pickle: bool,
    fields: Sequence[str] | None = None,
    layout: str = STORED,
) -> tuple[Any, int, int]:
    """The resolved rows as a TensorDict of batch size [rows], in the order in which they were asked for.

    A field whose rows lie in one stretch of at least `copy_below` bytes becomes a view of exactly those bytes: its
    tensor's storage spans its rows and nothing else, and owns the lease. Other fields are gathered into fresh memory.
    Rows come back as they were put (`mixed` says what a mixture of types becomes). Columns of Python values are
    NonTensorStacks that decode themselves when they are first looked at.

    Args:
        resolved: every requested row must have every field.
        mode: "cow": private copy-on-write views, writable; "shared": views on the read-only mapping, which a write
            kills the process for; "copy": private memory, no lease held afterwards.
        copy_below: bytes; what is smaller is copied.
        allow_pickle: whether fields that need pickle may be read.
        fields: names; all resolved ones by default.
        layout: "stored": rows come back as they were put; "jagged": see `jagged_layout`. Fields of nested TensorDicts
            stay as they were put.

    Returns:
        (TensorDict, bytes viewed, bytes copied)

    Raises:
        FieldNotReadyError: a field is missing on some row.
        PickleNotAllowedError, RowDecodeError: a field of Python objects; a ValueError each.
        CorruptSegmentError, LayoutMismatchError: stored bytes that contradict themselves, or of another version.
    """
    names = list(resolved.fields) if fields is None else list(fields)
    n_rows = resolved.n_rows
    if not n_rows or not names:
        return new_batch({}, n_rows), 0, 0
    plain = PlainColumns(resolved, names, mode, copy_below)
    general: GeneralColumns | None = None
    columns = plain.columns
    paths: dict[str, tuple[tuple[str, ...], tuple[tuple[int, ...], ...]]] = {}
    for name, parts in plain.rest:
        if parts is not None:
            columns[name] = _undamaged(name, plain.column, name, parts)
            place: PlainField | BlockSchema = parts[1]
        else:
            if general is None:
                general = GeneralColumns(
                    resolved, mode, copy_below, plain.offsets, allow_pickle=allow_pickle, jagged=layout == JAGGED
                )
            columns[name], place = _undamaged(name, general.column, name)
        if place.path:
            paths[name] = (place.path, place.inner_batch)
    if layout == JAGGED:
        views = JaggedViews(n_rows, plain.offsets)
        columns.update((name, views.of(column)) for name, column in list(columns.items()) if name not in paths)
    batch = _undamaged(name_some(paths), nest, columns, paths, n_rows) if paths else new_batch(columns, n_rows)
    if general is None:
        return batch, plain.viewed_nbytes, plain.copied_nbytes
    rows = general.rows
    resolved.count(rows.viewed_nbytes, rows.copied_nbytes)
    return batch, plain.viewed_nbytes + rows.viewed_nbytes, plain.copied_nbytes + rows.copied_nbytes


def _undamaged(name: str, read: Callable[..., _Read], *arguments: Any) -> _Read:
    """What `read` returns. What torch and numpy raise over rows that contradict themselves is CorruptSegmentError."""
    try:
        return read(*arguments)
    except TransferQueueError:
        raise
    except (ValueError, TypeError, LookupError, ArithmeticError, RuntimeError) as error:
        if "alloc" in str(error):  # torch's way to say that there is no memory
            raise
        raise CorruptSegmentError(f"the stored rows of field {name!r} contradict themselves: {error}") from error


class GeneralColumns:
    """Columns of any form, one after another, through Python."""

    def __init__(
        self,
        resolved: _native.Resolved,
        mode: str,
        copy_below: int,
        offsets: list[torch.Tensor],
        *,
        allow_pickle: bool,
        jagged: bool,
    ) -> None:
        self.rows = RowReader(resolved, mode, copy_below, offsets)
        self._resolved = resolved
        self._known = {name: index for index, name in enumerate(resolved.fields)}
        self._allow_pickle = allow_pickle
        self._jagged = jagged

    def column(self, name: str) -> tuple[Any, BlockSchema]:
        """The column, and the schema of its first row."""
        resolved = self._resolved
        n_rows = resolved.n_rows
        index = self._known.get(name)
        pieces = None if index is None else resolved.pieces(index)
        if index is None or pieces is None or not _covers(pieces, n_rows):
            raise _not_ready(resolved, name, pieces, n_rows)
        schemas = _schemas(resolved, index, pieces)
        field = FieldReader(self.rows, index, name, allow_pickle=self._allow_pickle, jagged=self._jagged)
        first = schemas[0]
        if len(schemas) == 1 or len({schema.key for schema in set(schemas)}) == 1:
            schema = next((schema for schema in schemas if schema.pickled), first)
            return field.column(schema, pieces, n_rows), first
        return mixed_column(field, schemas, pieces, n_rows), first


def decode_empty(field_schema: Mapping[str, Mapping[str, Any]]) -> Any:
    """A TensorDict of no rows with the fields of `field_schema` (see `schema_dict`): dtypes and row shapes are kept."""
    columns: dict[str, Any] = {}
    for name, entry in field_schema.items():
        if entry.get("is_non_tensor"):
            columns[name] = eager_stack([])
            continue
        given = entry.get("dtype") or "float32"
        dtype = given if isinstance(given, torch.dtype) else from_name(str(given).removeprefix("torch."))
        shape = [max(int(size), -1) for size in entry.get("shape") or ()]
        if not entry.get("is_nested"):
            columns[name] = torch.empty((0, *(max(size, 0) for size in shape)), dtype=dtype)
        elif shape.count(-1) == 1:
            ragged_dim = shape.index(-1)
            values = torch.empty((0, *(size for size in shape if size >= 0)), dtype=dtype)
            offsets = torch.zeros(1, dtype=torch.int64)
            columns[name] = jagged_over(values, offsets, ragged_dim=ragged_dim, shortest=0, longest=0)
        else:
            columns[name] = eager_stack([])
    return new_batch(columns, 0)


def _covers(pieces: Pieces, n_rows: int) -> bool:
    return int(pieces[0, 1]) == n_rows if len(pieces) == 1 else int(pieces[:, 1].sum()) == n_rows


def _schemas(resolved: _native.Resolved, index: int, pieces: Pieces) -> list[BlockSchema]:
    """The schema of each piece."""
    by_block: dict[int, BlockSchema] = {}
    schemas = []
    for block in pieces[:, 2].tolist():
        schema = by_block.get(block)
        if schema is None:
            layout = resolved.layout(index, block)
            if layout is None:
                raise CorruptSegmentError(f"field {resolved.fields[index]!r} has rows in a block that lacks it")
            schema = by_block[block] = read_schema(layout.schema)
        schemas.append(schema)
    return schemas


def _not_ready(resolved: _native.Resolved, name: str, pieces: Pieces | None, n_rows: int) -> FieldNotReadyError:
    covered = np.zeros(n_rows, dtype=bool)
    for first, count, _, _ in [] if pieces is None else pieces.tolist():
        covered[first : first + count] = True
    missing = np.asarray(resolved.indexes)[~covered].tolist()
    return FieldNotReadyError(
        f"field {name!r} is not there on {len(missing)} of {n_rows} rows ({name_some(missing)}): wait for it "
        f"(timeout=...), or read the fields that are: {name_some(resolved.fields)}",
        fields=(name,),
        rows=tuple(missing),
    )
