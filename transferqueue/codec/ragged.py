"""Nested tensors: rows of one dtype and rank that differ in shape.

One dimension differs and the others are not empty (nearly all cases): rows lie one after another without headers,
and a row's bytes give its length. Jagged rows have their ragged dimension moved to the front in memory, so that the
values of any stretch of rows are one strided tensor, whichever dimension is ragged. Otherwise rows describe
themselves (`tensor_rows`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from transferqueue.codec import schema as forms
from transferqueue.codec.dense import check_storable, is_plain_bytes, row_mismatch
from transferqueue.codec.dtypes import name_of
from transferqueue.codec.encoded_field import EncodedField
from transferqueue.codec.field_tree import Leaf
from transferqueue.codec.nested_tensors import JaggedParts, jagged_parts
from transferqueue.codec.tensor_rows import encode_tensor_rows
from transferqueue.errors import SchemaMismatchError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ragged_schema = lru_cache(maxsize=4096)(forms.schema_bytes)


def encode_nested(leaf: Leaf, tensor: torch.Tensor, n_rows: int) -> EncodedField | None:
    """A nested tensor of either layout with `n_rows` rows; the layout and the ragged dimension are recorded.

    None for a tensor that is not nested.
    """
    jagged = jagged_parts(tensor)
    if jagged is None and not tensor.is_nested:
        return None
    rows = int(tensor.size(0)) if jagged is None else len(jagged.offsets) - 1
    if rows != n_rows:
        raise row_mismatch(leaf.name, rows, n_rows)
    check_storable(leaf.name, tensor if jagged is None else jagged.values)
    return _encode_strided(leaf, tensor.detach()) if jagged is None else _encode_jagged(leaf, jagged)


def _schema(leaf: Leaf, form: str, dtype: torch.dtype, shape: tuple[int, ...] | None, headers: bool) -> bytes:
    return _ragged_schema(form, name_of(dtype), shape, headers, False, leaf.path, leaf.inner_batch)


def _encode_jagged(leaf: Leaf, jagged: JaggedParts) -> EncodedField:
    values, stored_offsets, lengths, ragged = jagged
    offsets = stored_offsets.cpu().numpy().astype(np.int64)
    row_shape = list(values.shape)
    row_shape[ragged] = -1
    by_row = values.movedim(ragged, 0)
    unit = values.element_size()
    for size in by_row.shape[1:]:
        unit *= size
    starts = offsets[:-1]
    counts = np.diff(offsets) if lengths is None else lengths.cpu().numpy().astype(np.int64)
    _check_rows(leaf.name, starts, counts, by_row.shape[0])
    if unit == 0:
        # No bytes say how long a row is.
        rows = [
            values.narrow(ragged, start, count).contiguous()
            for start, count in zip(starts.tolist(), counts.tolist(), strict=True)
        ]
        return encode_tensor_rows(leaf, _schema(leaf, forms.JAGGED, values.dtype, tuple(row_shape), True), rows)
    schema = _schema(leaf, forms.JAGGED, values.dtype, tuple(row_shape), False)
    placed = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts * unit, out=placed[1:])
    nbytes = int(placed[-1])
    if lengths is None:
        body = by_row[int(offsets[0]) : int(offsets[-1])]
        if is_plain_bytes(body):
            writes = ((0, body.data_ptr(), nbytes),)
            return EncodedField(leaf.name, schema, data_nbytes=nbytes, offsets=placed, writes=writes, keep=body)
        return EncodedField(leaf.name, schema, data_nbytes=nbytes, offsets=placed, copies=((0, body),))
    if is_plain_bytes(by_row):
        base = by_row.data_ptr()
        sources = (base + starts * unit).tolist()
        row_writes = list(zip(placed[:-1].tolist(), sources, (counts * unit).tolist(), strict=True))
        return EncodedField(leaf.name, schema, data_nbytes=nbytes, offsets=placed, writes=row_writes, keep=by_row)
    copies = [
        (place, by_row[start : start + count])
        for place, start, count in zip(placed[:-1].tolist(), starts.tolist(), counts.tolist(), strict=True)
        if count
    ]
    return EncodedField(leaf.name, schema, data_nbytes=nbytes, offsets=placed, copies=copies)


def _check_rows(name: str, starts: NDArray[np.int64], counts: NDArray[np.int64], steps: int) -> None:
    """torch takes offsets and lengths as they are given; bytes outside of the values would be somebody else's."""
    if counts.shape != starts.shape:
        raise SchemaMismatchError(f"field {name!r}: {len(counts)} lengths for {len(starts)} rows", fields=(name,))
    if len(starts) == 0:
        return
    # Without an overflow: a start and a count that pass the first two are at most `steps`.
    inside = starts.min() >= 0 and counts.min() >= 0 and max(starts.max(), counts.max()) <= steps
    if not inside or (starts + counts).max() > steps:
        raise SchemaMismatchError(
            f"field {name!r}: the offsets of the jagged tensor do not lie in its values ({steps} along the ragged "
            f"dimension): rows start at {starts.min()} to {starts.max()} and have {counts.min()} to {counts.max()}",
            fields=(name,),
        )


def _encode_strided(leaf: Leaf, tensor: Any) -> EncodedField:
    rows = int(tensor.size(0))
    sizes = tensor._nested_tensor_size().cpu().numpy().reshape(rows, -1) if rows else np.empty((0, 1), dtype=np.int64)
    shape = common_shape(sizes)
    differing = shape.count(-1)
    if not shape or differing > 1 or 0 in shape:
        schema = _schema(leaf, forms.STRIDED, tensor.dtype, shape, True)
        return encode_tensor_rows(leaf, schema, list(tensor.unbind()))
    if differing == 0:
        shape = (-1, *shape[1:])
    schema = _schema(leaf, forms.STRIDED, tensor.dtype, shape, False)
    placed = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes.prod(axis=1) * tensor.element_size(), out=placed[1:])
    nbytes = int(placed[-1])
    if tensor.is_contiguous() and tensor.device.type == "cpu" and not tensor.is_conj():
        writes = ((0, tensor.data_ptr(), nbytes),)
        return EncodedField(leaf.name, schema, data_nbytes=nbytes, offsets=placed, writes=writes, keep=tensor)
    copies = [(place, row) for place, row in zip(placed[:-1].tolist(), tensor.unbind(), strict=True) if row.numel()]
    return EncodedField(leaf.name, schema, data_nbytes=nbytes, offsets=placed, copies=copies)


def common_shape(sizes: NDArray[np.int64]) -> tuple[int, ...]:
    """The shape that rows share, -1 where they differ; `sizes` is int64 [rows, rank]."""
    if len(sizes) == 0:
        return (-1,)
    same = (sizes == sizes[0]).all(axis=0)
    return tuple(int(size) if equal else -1 for size, equal in zip(sizes[0], same, strict=True))


def encode_stack(leaf: Leaf, rows: list[torch.Tensor]) -> EncodedField:
    """Tensors of any shapes and dtypes, one per row."""
    dtypes = {row.dtype for row in rows}
    ranks = {row.dim() for row in rows}
    for row in rows:
        check_storable(leaf.name, row)
    dtype = name_of(rows[0].dtype) if len(dtypes) == 1 else None
    shape = None
    if len(ranks) == 1:
        shape = common_shape(np.array([tuple(row.shape) for row in rows], dtype=np.int64).reshape(len(rows), -1))
    schema = forms.schema_bytes(forms.STACK, dtype, shape, True, False, leaf.path, leaf.inner_batch)
    return encode_tensor_rows(leaf, schema, rows)
