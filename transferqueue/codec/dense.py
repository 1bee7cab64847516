"""Dense tensors: rows of one shape, one after another."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from transferqueue.codec import schema as forms
from transferqueue.codec.dtypes import is_storable, name_of
from transferqueue.codec.encoded_field import EncodedField
from transferqueue.codec.field_tree import Leaf
from transferqueue.errors import SchemaMismatchError


@lru_cache(maxsize=4096)
def _dense_schema(
    dtype: torch.dtype, shape: tuple[int, ...], path: tuple[str, ...], inner_batch: tuple[tuple[int, ...], ...]
) -> bytes:
    return forms.schema_bytes(forms.DENSE, name_of(dtype), shape, path=path, inner_batch=inner_batch)


def check_storable(name: str, tensor: torch.Tensor) -> None:
    """Refuses, by name of the field, tensors whose values are not plain bytes."""
    if tensor.layout is not torch.strided and not tensor.is_nested:
        raise SchemaMismatchError(
            f"field {name!r} has layout {tensor.layout}: put its parts, or tensor.to_dense()", fields=(name,)
        )
    if not is_storable(tensor.dtype):
        raise SchemaMismatchError(
            f"field {name!r} has dtype {tensor.dtype}, whose values are not in its bytes alone: put "
            "tensor.int_repr() or tensor.dequantize()",
            fields=(name,),
            found=str(tensor.dtype),
        )
    if tensor.device.type == "meta":
        raise SchemaMismatchError(f"field {name!r} is on the meta device and has no values", fields=(name,))
    if type(tensor) is not torch.Tensor and not tensor.is_nested and is_traceable_wrapper_subclass(tensor):
        raise SchemaMismatchError(
            f"field {name!r} is a {type(tensor).__name__}, which wraps other tensors: put a plain tensor "
            "(DTensor: full_tensor() or to_local())",
            fields=(name,),
        )
    # Nested tensors are looked at by their values.
    if not tensor.is_nested and not _has_memory(tensor):
        raise _without_memory(name, tensor)


def _has_memory(tensor: torch.Tensor) -> bool:
    if tensor.numel() == 0:
        return True
    try:
        # A fake tensor warns of its address; the storage behind it tells without.
        if type(tensor) is not torch.Tensor and tensor.untyped_storage().device != tensor.device:
            return False
        return tensor.data_ptr() != 0
    except RuntimeError:
        return False  # wrapped by a transform of torch.func


def _without_memory(name: str, tensor: torch.Tensor) -> SchemaMismatchError:
    return SchemaMismatchError(
        f"field {name!r}, a {type(tensor).__name__} of {tensor.numel()} values, has no memory that holds them (a fake, "
        "functional or masked tensor, one inside a transform of torch.func, or one whose storage was freed): put a "
        "plain tensor",
        fields=(name,),
    )


def is_plain_bytes(tensor: torch.Tensor) -> bool:
    """Whether the tensor's bytes at `data_ptr` are its values in order."""
    return tensor.is_contiguous() and tensor.device.type == "cpu" and not tensor.is_conj() and not tensor.is_neg()


def encode_dense(leaf: Leaf, tensor: torch.Tensor, n_rows: int) -> EncodedField:
    """A strided tensor [rows, ...] of any dtype, strides and device; detached, conjugation resolved."""
    check_storable(leaf.name, tensor)
    shape = tuple(tensor.shape)
    if not shape or shape[0] != n_rows:
        raise row_mismatch(leaf.name, shape[0] if shape else None, n_rows)
    nbytes = tensor.numel() * tensor.element_size()
    schema = _dense_schema(tensor.dtype, shape[1:], leaf.path, leaf.inner_batch)
    row_nbytes = nbytes // n_rows if n_rows else 0
    if is_plain_bytes(tensor):
        writes = ((0, tensor.data_ptr(), nbytes),)
        return EncodedField(leaf.name, schema, data_nbytes=nbytes, row_nbytes=row_nbytes, writes=writes, keep=tensor)
    return EncodedField(leaf.name, schema, data_nbytes=nbytes, row_nbytes=row_nbytes, copies=((0, tensor),))


def encode_dense_rows(leaf: Leaf, rows: list[torch.Tensor]) -> EncodedField:
    """Tensors of one shape and dtype, one per row (a lazy stack): gathered by the put itself, not stacked first."""
    first = rows[0]
    check_storable(leaf.name, first)
    row_nbytes = first.numel() * first.element_size()
    plain = [is_plain_bytes(row) for row in rows]
    writes = [(i * row_nbytes, row.data_ptr(), row_nbytes) for i, row in enumerate(rows) if plain[i]]
    if row_nbytes and not all(address for _, address, _ in writes):
        raise _without_memory(leaf.name, next(row for row in rows if not row.data_ptr()))
    return EncodedField(
        leaf.name,
        _dense_schema(first.dtype, tuple(first.shape), leaf.path, leaf.inner_batch),
        data_nbytes=row_nbytes * len(rows),
        row_nbytes=row_nbytes,
        writes=writes,
        copies=[(i * row_nbytes, row) for i, row in enumerate(rows) if not plain[i]],
        keep=rows,
    )


def row_mismatch(name: str, found: Any, expected: int) -> SchemaMismatchError:
    what = "no rows: it is 0-dimensional" if found is None else f"{found} rows"
    return SchemaMismatchError(
        f"field {name!r} has {what}, in a batch of {expected}", fields=(name,), expected=expected, found=found
    )
