"""Stored rows of one type as a column: the tensor, nested tensor or stack that was put."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from transferqueue.codec import schema as forms
from transferqueue.codec.dtypes import from_name, is_text, numpy_from_text
from transferqueue.codec.lazy_stack import lazy_stack
from transferqueue.codec.nested_tensors import jagged_over, strided_over
from transferqueue.codec.python_columns import decode_objects, pickle_refused
from transferqueue.codec.row_reader import RowReader
from transferqueue.codec.schema import BlockSchema
from transferqueue.codec.tensor_rows import own_storage, row_tensors
from transferqueue.codec.values import decode_values
from transferqueue.errors import CorruptSegmentError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from transferqueue.codec.row_reader import Pieces


class FieldReader:
    """Reads one field of a resolved batch, by the form of its rows.

    Args:
        rows: where its bytes come from.
        index: position of the field in the resolved batch.
        name: for messages.
        allow_pickle: whether rows may be unpickled.
        jagged: rows that are tensors come back as `jagged_layout` says, dense columns excepted.
    """

    def __init__(self, rows: RowReader, index: int, name: str, *, allow_pickle: bool, jagged: bool = False) -> None:
        self.rows = rows
        self.index = index
        self.name = name
        self.allow_pickle = allow_pickle
        self.nested_as_jagged = jagged

    def column(self, schema: BlockSchema, pieces: Pieces, n_rows: int) -> Any:
        """The rows of `pieces`, all of one schema key, as they were put."""
        if schema.form == forms.DENSE:
            return self.dense(schema, pieces, n_rows)
        if schema.form == forms.JAGGED and not schema.headers:
            data, offsets, unit = self._plain(schema, pieces)
            return self.jagged(data, offsets, unit, schema)
        if schema.form == forms.JAGGED:
            return self.jagged_of(self.row_list(schema, pieces), schema.ragged_dim)
        if self.nested_as_jagged and schema.form in (forms.STRIDED, forms.STACK):
            return self._strided_as_jagged(schema, pieces)
        if schema.form == forms.STRIDED and not schema.headers:
            data, offsets, unit = self._plain(schema, pieces)
            assert schema.shape is not None  # narrowing: `_plain` checked it
            sizes = np.tile(np.array(schema.shape, dtype=np.int64), (n_rows, 1))
            sizes[:, schema.ragged_dim] = np.diff(offsets) // unit
            return strided_over(data.view(_dtype(schema)), sizes)
        if schema.form == forms.STRIDED:
            return strided_of(self.row_list(schema, pieces))
        if schema.form == forms.VALUES:
            data, _ = self.rows.ragged(self.index, pieces)
            name = self.name
            return lazy_stack(None, n_rows, lambda: decode_values(name, data.numpy(), n_rows))
        return lazy_stack(self.row_list(schema, pieces), n_rows)

    def _strided_as_jagged(self, schema: BlockSchema, pieces: Pieces) -> Any:
        """Strided nested tensors and stacks. Rows that differ in their first dimension only lie in memory as a jagged
        tensor has them."""
        if schema.form == forms.STRIDED and not schema.headers and schema.ragged_dim == 0:
            data, offsets, unit = self._plain(schema, pieces)
            return self.jagged(data, offsets, unit, schema)
        return self.together(self.row_list(schema, pieces))

    def together(self, rows: list[Any], put_ragged: int = 0) -> Any:
        """Separate rows as one column, by the rules of `jagged_layout`; copies them together."""
        if not all(isinstance(row, torch.Tensor) for row in rows) or len({(row.dtype, row.dim()) for row in rows}) > 1:
            return lazy_stack(rows, len(rows))
        if rows[0].dim() == 0:
            return torch.stack(rows)
        sizes = np.array([tuple(row.shape) for row in rows], dtype=np.int64)
        differing = np.flatnonzero((sizes != sizes[0]).any(axis=0)).tolist()
        if len(differing) > 1:
            return strided_of(rows)
        return self.jagged_of(rows, differing[0] if differing else put_ragged)

    def row_list(self, schema: BlockSchema, pieces: Pieces) -> list[Any]:
        """The rows of `pieces`, all of one schema key, one by one: tensors, numpy values or Python values."""
        n_rows = int(pieces[:, 1].sum())
        if schema.form == forms.DENSE:
            return list(self.dense(schema, pieces, n_rows).unbind(0))
        if schema.form == forms.NUMPY:
            return list(self._numpy(schema, pieces, n_rows))
        if schema.form == forms.VALUES:
            data, _ = self.rows.ragged(self.index, pieces)
            return decode_values(self.name, data.numpy(), n_rows)
        if schema.form == forms.OBJECTS:
            if schema.pickled and not self.allow_pickle:
                raise pickle_refused(self.name)
            return self._objects(pieces)
        if schema.headers:
            return self._of_schema(schema, self._tensor_rows(pieces))
        data, offsets, unit = self._plain(schema, pieces)
        assert schema.shape is not None  # narrowing: `_plain` checked it
        bounds = offsets.tolist()
        rows = []
        for start, end in pairwise(bounds):
            row = own_storage(data[start:end]).view(_dtype(schema))
            length = (end - start) // unit
            if schema.form == forms.JAGGED:
                rest = [size for size in schema.shape if size >= 0]
                rows.append(row.view(length, *rest).movedim(0, schema.ragged_dim))
            else:
                rows.append(row.view([length if size < 0 else size for size in schema.shape]))
        return rows

    def dense(self, schema: BlockSchema, pieces: Pieces, n_rows: int) -> torch.Tensor:
        """[rows, *shape]"""
        assert schema.shape is not None  # narrowing: `read_schema` checked it
        dtype = _dtype(schema)
        row_nbytes = dtype.itemsize
        for size in schema.shape:
            row_nbytes *= size
        if not row_nbytes:
            return torch.empty((n_rows, *schema.shape), dtype=dtype)
        return self.rows.fixed(self.index, pieces, row_nbytes).view(dtype).view(n_rows, *schema.shape)

    def jagged(self, data: torch.Tensor, offsets: NDArray[np.int64], unit: int, schema: BlockSchema) -> Any:
        """A jagged tensor over rows that lie one after another, `unit` bytes for one step of the ragged dimension."""
        assert schema.shape is not None  # narrowing: `_plain` checked it
        ragged_dim = schema.ragged_dim
        rest = [size for dim, size in enumerate(schema.shape) if dim != ragged_dim]
        steps = offsets // unit
        lengths = np.diff(steps)
        return jagged_over(
            data.view(_dtype(schema)).view(int(steps[-1]), *rest),
            self.rows.as_tensor(steps),
            ragged_dim=ragged_dim,
            shortest=int(lengths.min(initial=lengths[0] if len(lengths) else 0)),
            longest=int(lengths.max(initial=0)),
        )

    def jagged_of(self, rows: list[torch.Tensor], ragged_dim: int) -> Any:
        """A jagged tensor of separate rows that differ in `ragged_dim` only; copies them together."""
        lengths = np.array([row.shape[ragged_dim] for row in rows], dtype=np.int64)
        steps = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum(lengths, out=steps[1:])
        return jagged_over(
            torch.cat([row.movedim(ragged_dim, 0) for row in rows]),
            self.rows.as_tensor(steps),
            ragged_dim=ragged_dim,
            shortest=int(lengths.min()),
            longest=int(lengths.max()),
        )

    def _plain(self, schema: BlockSchema, pieces: Pieces) -> tuple[torch.Tensor, NDArray[np.int64], int]:
        """(bytes, offsets, bytes for one step of the ragged dimension) of rows without headers."""
        unit = _dtype(schema).itemsize
        for size in schema.shape or ():
            unit *= size if size >= 0 else 1
        if schema.shape is None or unit <= 0:
            raise CorruptSegmentError(f"the schema of field {self.name!r} contradicts itself: {schema}")
        data, offsets = self.rows.ragged(self.index, pieces)
        if (offsets % unit).any():
            raise CorruptSegmentError(f"rows of field {self.name!r} are not whole: their sizes do not divide by {unit}")
        return data, offsets, unit

    def _numpy(self, schema: BlockSchema, pieces: Pieces, n_rows: int) -> Any:
        assert schema.shape is not None
        assert schema.dtype is not None  # narrowing: `read_schema`
        dtype = numpy_from_text(schema.dtype)
        row_nbytes = dtype.itemsize * int(np.prod(schema.shape, dtype=np.int64))
        if not row_nbytes:
            return np.empty((n_rows, *schema.shape), dtype=dtype)
        raw = self.rows.fixed(self.index, pieces, row_nbytes).numpy()
        values = raw.view(dtype).reshape(n_rows, *schema.shape)
        if not is_text(values):
            raise CorruptSegmentError(f"rows of field {self.name!r} hold what is no character")
        return values

    # Rows that describe themselves come piece by piece: each is a view of its own where it is large, so that rows
    # put one by one are not copied together.

    def _tensor_rows(self, pieces: Pieces) -> list[torch.Tensor]:
        rows: list[torch.Tensor] = []
        for part in self._parts(pieces):
            data, offsets = self.rows.ragged(self.index, part)
            rows.extend(row_tensors(data, offsets))
        return rows

    def _of_schema(self, schema: BlockSchema, rows: list[torch.Tensor]) -> list[torch.Tensor]:
        """`rows`, if they are what all schemas of that key say of them."""
        if schema.form == forms.STACK or schema.shape is None:
            return rows
        dtype, rank = _dtype(schema), len(schema.shape)
        sizes = schema.shape if schema.form == forms.JAGGED else (-1,) * rank
        for row in rows:
            same = row.dtype is dtype and row.dim() == rank
            if not same or any(size not in (-1, found) for size, found in zip(sizes, row.shape, strict=True)):
                raise CorruptSegmentError(
                    f"a row of field {self.name!r} is {row.dtype} {list(row.shape)}, which its type does not allow"
                )
        return rows

    def _objects(self, pieces: Pieces) -> list[Any]:
        rows: list[Any] = []
        for part in self._parts(pieces):
            data, offsets = self.rows.ragged(self.index, part)
            positions = [place for first, count, _, _ in part.tolist() for place in range(first, first + count)]
            rows.extend(decode_objects(self.name, data, offsets, positions, allow_pickle=self.allow_pickle))
        return rows

    def _parts(self, pieces: Pieces) -> list[Pieces]:
        """`pieces` cut so that stretches worth a view stand alone and the others are gathered together."""
        if len(pieces) == 1:
            return [pieces]
        sizes = self.rows.resolved.row_nbytes(self.index, pieces)
        ends = np.cumsum(pieces[:, 1])
        totals = np.add.reduceat(sizes, ends - pieces[:, 1])
        cuts = [0]
        for position, large in enumerate((totals >= self.rows.copy_below).tolist()):
            if large:
                cuts.extend((position, position + 1))
        cuts.append(len(pieces))
        return [pieces[start:end] for start, end in pairwise(cuts) if end > start]


def strided_of(rows: list[torch.Tensor]) -> Any:
    """A strided nested tensor of separate rows of one rank and dtype; copies them together."""
    sizes = np.array([tuple(row.shape) for row in rows], dtype=np.int64).reshape(len(rows), -1)
    return strided_over(torch.cat([row.reshape(-1) for row in rows]), sizes)


def _dtype(schema: BlockSchema) -> torch.dtype:
    if schema.dtype is None:
        raise CorruptSegmentError(f"the schema of a stored field lacks its dtype: {schema}")
    return from_name(schema.dtype)
