"""Columns of Python values: which form holds a list of rows exactly."""

from __future__ import annotations

from typing import Any

import numpy as np

from transferqueue.codec import schema as forms
from transferqueue.codec.dtypes import numpy_to_text
from transferqueue.codec.encoded_field import EncodedField
from transferqueue.codec.field_tree import Leaf
from transferqueue.codec.packed_rows import PICKLE, PackedRow, RowBuffers, pack_rows, unpack_rows
from transferqueue.codec.pickles import pack_pickle, unpack_pickle
from transferqueue.codec.ragged import encode_stack
from transferqueue.codec.trees import NotATree, TreeReader, is_plain_tensor, pack_tree
from transferqueue.codec.values import encode_values
from transferqueue.errors import PickleNotAllowedError, RowDecodeError, SchemaMismatchError


def encode_rows(leaf: Leaf, rows: list[Any]) -> EncodedField:
    """The most compact form that gives back equal values of equal types: tensors, plain values, trees, pickles."""
    if rows and all(map(is_plain_tensor, rows)):
        return encode_stack(leaf, rows)
    plain = encode_values(leaf, rows)
    if plain is not None:
        return plain
    packed = [_pack(leaf.name, position, row) for position, row in enumerate(rows)]
    pickled = any(row.kind == PICKLE for row in packed)
    schema = forms.schema_bytes(forms.OBJECTS, pickled=pickled, path=leaf.path, inner_batch=leaf.inner_batch)
    return pack_rows(leaf.name, schema, packed)


def _pack(name: str, position: int, row: Any) -> PackedRow:
    try:
        return pack_tree(row)
    except NotATree:
        pass
    try:
        return pack_pickle(row)
    except Exception as error:  # whatever a user's __reduce__ raises; the row is what the caller needs to know
        raise SchemaMismatchError(
            f"row {position} of field {name!r}, a {type(row).__name__}, cannot be pickled: {error!r}",
            fields=(name,),
            found=type(row).__name__,
        ) from error


def decode_objects(name: str, data: Any, offsets: Any, positions: list[int], *, allow_pickle: bool) -> list[Any]:
    """Rows of form OBJECTS in `data` (uint8); `positions` are their places in the batch, for messages.

    Raises:
        PickleNotAllowedError: a row needs pickle and `allow_pickle` is false.
        RowDecodeError: unpickling a row raised.
    """
    rows = []
    with TreeReader() as trees:
        for position, (kind, skeleton, buffers) in zip(positions, unpack_rows(data, offsets), strict=True):
            if kind != PICKLE:
                rows.append(trees.read(skeleton, buffers))
            elif allow_pickle:
                rows.append(_unpickle(name, position, skeleton, buffers))
            else:
                raise pickle_refused(name)
    return rows


def _unpickle(name: str, position: int, skeleton: memoryview, buffers: RowBuffers) -> Any:
    try:
        return unpack_pickle(skeleton, buffers)
    except Exception as error:  # code of the object's class: anything may come out of it
        raise RowDecodeError(
            f"row {position} of field {name!r} cannot be unpickled: {error!r}. Its other fields, and other rows, can "
            "be read",
            field=name,
            row=position,
        ) from error


def pickle_refused(name: str) -> PickleNotAllowedError:
    return PickleNotAllowedError(
        f"field {name!r} holds Python objects that only pickle keeps, and unpickling runs code of whoever wrote them. "
        "If you trust every writer of this session, set allow_pickle=True; else leave the field out (fields=...), or "
        "put plain values (str, numbers, lists, dicts, tensors, arrays)",
        field=name,
    )


def encode_numpy(leaf: Leaf, array: np.ndarray[Any, Any]) -> EncodedField:
    """Fixed-width numpy values [rows, ...] that torch has no dtype for: text, bytes, dates, structured."""
    whole = np.ascontiguousarray(array)
    schema = forms.schema_bytes(
        forms.NUMPY, numpy_to_text(array.dtype), array.shape[1:], path=leaf.path, inner_batch=leaf.inner_batch
    )
    rows = len(array)
    return EncodedField(
        leaf.name,
        schema,
        data_nbytes=whole.nbytes,
        row_nbytes=whole.nbytes // rows if rows else 0,
        writes=((0, whole.ctypes.data, whole.nbytes),),
        keep=whole,
    )
