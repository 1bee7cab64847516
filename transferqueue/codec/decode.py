"""From resolved rows back to a TensorDict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

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
from transferqueue.codec.schema import STUB, read_schema
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
    if not plain.rest and layout == STORED:
        return new_batch(plain.columns, n_rows), plain.viewed_nbytes, plain.copied_nbytes
    found = _Columns(n_rows, mode, copy_below, layout)
    found.read(resolved, plain, allow_pickle=allow_pickle)
    return found.batch(), found.viewed_nbytes, found.copied_nbytes


class Part(NamedTuple):
    """Some of the fields of a batch, resolved apart from the others.

    Attributes:
        resolved: the rows of the batch, in its order.
        fields: of this part; no field is in two.
        allow_pickle: whether these may be unpickled.
    """

    resolved: _native.Resolved
    fields: Sequence[str]
    allow_pickle: bool


def decode_parts(
    parts: Sequence[Part], fields: Sequence[str], *, mode: str, copy_below: int, layout: str = STORED
) -> tuple[Any, int, int]:
    """`decode`, of rows whose fields were resolved apart. All parts have the same number of rows; `fields` is the order
    of the columns. Jagged columns of equal lengths share their offsets, as in one `decode`."""
    n_rows = parts[0].resolved.n_rows if parts else 0
    if not n_rows or not fields:
        return new_batch({}, n_rows), 0, 0
    if len(parts) == 1:
        only = parts[0]
        return decode(
            only.resolved,
            mode=mode,
            copy_below=copy_below,
            allow_pickle=only.allow_pickle,
            fields=fields,
            layout=layout,
        )
    found = _Columns(n_rows, mode, copy_below, layout)
    for part in parts:
        plain = PlainColumns(part.resolved, list(part.fields), mode, copy_below, found.offsets)
        found.read(part.resolved, plain, allow_pickle=part.allow_pickle)
    found.columns = {name: found.columns[name] for name in fields}
    return found.batch(), found.viewed_nbytes, found.copied_nbytes


class _Columns:
    """The columns of one batch, read part by part."""

    __slots__ = (
        "_copy_below",
        "_layout",
        "_mode",
        "_n_rows",
        "_paths",
        "columns",
        "copied_nbytes",
        "offsets",
        "viewed_nbytes",
    )

    def __init__(self, n_rows: int, mode: str, copy_below: int, layout: str) -> None:
        self._n_rows = n_rows
        self._mode = mode
        self._copy_below = copy_below
        self._layout = layout
        self.offsets: list[torch.Tensor] = []
        self._paths: dict[str, tuple[tuple[str, ...], tuple[tuple[int, ...], ...]]] = {}
        self.columns: dict[str, Any] = {}
        self.viewed_nbytes = self.copied_nbytes = 0

    def read(self, resolved: _native.Resolved, plain: PlainColumns, *, allow_pickle: bool) -> None:
        general: GeneralColumns | None = None
        columns = plain.columns
        for name, parts in plain.rest:
            if parts is not None:
                columns[name] = _undamaged(name, plain.column, name, parts)
                place: PlainField | BlockSchema = parts[1]
            else:
                if general is None:
                    general = GeneralColumns(
                        resolved,
                        self._mode,
                        self._copy_below,
                        plain.offsets,
                        allow_pickle=allow_pickle,
                        jagged=self._layout == JAGGED,
                    )
                columns[name], place = _undamaged(name, general.column, name)
            if place.path:
                self._paths[name] = (place.path, place.inner_batch)
        self.offsets = plain.offsets
        self.viewed_nbytes += plain.viewed_nbytes
        self.copied_nbytes += plain.copied_nbytes
        if general is not None:
            rows = general.rows
            resolved.count(rows.viewed_nbytes, rows.copied_nbytes)
            self.viewed_nbytes += rows.viewed_nbytes
            self.copied_nbytes += rows.copied_nbytes
        if self.columns:
            self.columns.update(columns)
        else:
            self.columns = columns

    def batch(self) -> Any:
        columns, paths, n_rows = self.columns, self._paths, self._n_rows
        if self._layout == JAGGED:
            views = JaggedViews(n_rows, self.offsets)
            columns.update((name, views.of(column)) for name, column in list(columns.items()) if name not in paths)
        return _undamaged(name_some(paths), nest, columns, paths, n_rows) if paths else new_batch(columns, n_rows)


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
        if any(schema.form == STUB for schema in schemas):
            raise CorruptSegmentError(
                f"rows of field {name!r} lie on another node, and this process knows of none: it is in a session of "
                "one node"
            )
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
