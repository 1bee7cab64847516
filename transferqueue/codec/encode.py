"""From a TensorDict (or dict) to a put plan: which form each field is stored in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from tensordict import LazyStackedTensorDict, NonTensorStack, is_tensor_collection
from tensordict.tensorclass import is_non_tensor

from transferqueue.codec import schema as forms
from transferqueue.codec.dense import encode_dense, encode_dense_rows, row_mismatch
from transferqueue.codec.dtypes import torch_name_of_numpy
from transferqueue.codec.encoded_field import EncodedField, reading
from transferqueue.codec.field_tree import Leaf, RowList, leaves, stack_values
from transferqueue.codec.put_plan import PutPlan
from transferqueue.codec.python_columns import encode_numpy, encode_rows
from transferqueue.codec.ragged import encode_nested, encode_stack
from transferqueue.errors import SchemaMismatchError


def plan_put(batch: Any, n_rows: int | None = None, *, lists_are_rows: bool = False) -> PutPlan:
    """Plans the put of `batch`; reads its types and shapes, and copies no tensor.

    Args:
        batch: a TensorDict, tensorclass or lazy stack whose first batch dimension is the rows, or a dict of columns:
            tensors [rows, ...] (dense, jagged or strided nested), lists of row values, numpy arrays [rows, ...],
            further dicts. Entries that are one value for the batch (NonTensorData, a str or number in a dict) become
            `PutPlan.batch_info`.
        n_rows: expected number of rows; needed for a dict without any column.
        lists_are_rows: a NonTensorData that holds a list with one entry per row is a column of them, and not one value
            of the batch.

    Raises:
        SchemaMismatchError: a ValueError that names the field: wrong number of rows, no batch dimension, a name that
            is empty or holds NUL, a tensor whose bytes are not its values (sparse, quantized, DTensor), a Python
            value that not even pickle can store.
    """
    rows = _row_count(batch)
    if n_rows is not None and rows is not None and rows != n_rows:
        raise SchemaMismatchError(f"the batch has {rows} rows where {n_rows} are put", expected=n_rows, found=rows)
    rows = n_rows if rows is None else rows
    if rows is None:
        raise SchemaMismatchError("the batch is a dict without a column, so it has no number of rows: pass n_rows")
    fields: list[EncodedField] = []
    batch_info: dict[str, Any] = {}
    for leaf, value in leaves(batch, rows):
        if lists_are_rows and not isinstance(value, torch.Tensor) and is_non_tensor(value):
            value = _rows_in_list(value, rows)
        with reading(leaf.name):
            field = encode_column(leaf, value, rows)
        if field is None:
            batch_info[leaf.name] = _constant(value)
        else:
            fields.append(field)
    return PutPlan(fields, rows, batch_info)


def encode_column(leaf: Leaf, value: Any, n_rows: int) -> EncodedField | None:
    """One column as a field; None for what is one value of the whole batch."""
    if isinstance(value, torch.Tensor):
        nested = None if type(value) is torch.Tensor and not value.is_nested else encode_nested(leaf, value, n_rows)
        return encode_dense(leaf, value, n_rows) if nested is None else nested
    if isinstance(value, RowList):
        return _encode_row_list(leaf, value)
    if isinstance(value, NonTensorStack):
        value = stack_values(value)
    elif is_non_tensor(value):
        # tensordict wraps a numpy array of the batch's length into one NonTensorData: it is a column all the same.
        data = value.data
        if not (isinstance(data, np.ndarray) and data.shape[:1] == (n_rows,)):
            return None
        value = data
    if isinstance(value, (list, tuple)):
        if len(value) != n_rows:
            raise row_mismatch(leaf.name, len(value), n_rows)
        return encode_rows(leaf, list(value))
    if isinstance(value, np.ndarray) and value.ndim:
        return _encode_array(leaf, value, n_rows)
    return None


def _encode_row_list(leaf: Leaf, rows: RowList) -> EncodedField:
    if any(row.is_nested for row in rows):
        raise SchemaMismatchError(
            f"field {leaf.name!r} has nested tensors as rows of a lazy stack", fields=(leaf.name,)
        )
    if len({(row.dtype, tuple(row.shape)) for row in rows}) == 1:
        return encode_dense_rows(leaf, rows)
    return encode_stack(leaf, rows)


def _encode_array(leaf: Leaf, array: np.ndarray[Any, Any], n_rows: int) -> EncodedField:
    if len(array) != n_rows:
        raise row_mismatch(leaf.name, len(array), n_rows)
    name = torch_name_of_numpy(array.dtype)
    if name is None:
        if array.dtype.hasobject or not array.dtype.itemsize or array.dtype.kind == "T":
            return encode_rows(leaf, list(array))
        return encode_numpy(leaf, array)
    # Not through torch.from_numpy, which warns about arrays that are read-only, as Ray's are.
    whole = np.ascontiguousarray(array)
    schema = forms.schema_bytes(forms.DENSE, name, array.shape[1:], path=leaf.path, inner_batch=leaf.inner_batch)
    row_nbytes = whole.nbytes // n_rows if n_rows else 0
    writes = ((0, whole.ctypes.data, whole.nbytes),)
    return EncodedField(leaf.name, schema, data_nbytes=whole.nbytes, row_nbytes=row_nbytes, writes=writes, keep=whole)


def _rows_in_list(value: Any, n_rows: int) -> Any:
    held = None if isinstance(value, NonTensorStack) else value.data
    return held if isinstance(held, list) and len(held) == n_rows else value


def _constant(value: Any) -> Any:
    return value.data if is_non_tensor(value) else value


def _row_count(batch: Any) -> int | None:
    if is_tensor_collection(batch) and not is_non_tensor(batch):
        size = batch.batch_size
        if not size:
            raise SchemaMismatchError(
                "the batch has no batch dimension, hence no rows: give it batch_size=[rows]; one row: unsqueeze(0)"
            )
        if isinstance(batch, LazyStackedTensorDict) and size[0] < 0:
            return len(batch.unbind(0))
        return int(size[0])
    if not isinstance(batch, Mapping):
        raise SchemaMismatchError(
            f"a batch is a TensorDict or a dict of columns, not a {type(batch).__name__}", found=type(batch).__name__
        )
    for value in batch.values():
        rows = _length(value)
        if rows is not None:
            return rows
    return None


def _length(value: Any) -> int | None:
    """Rows of one entry of a dict; None when it is a constant."""
    if isinstance(value, torch.Tensor):
        return int(value.size(0)) if value.dim() else None
    if isinstance(value, np.ndarray):
        return len(value) if value.ndim else None
    if isinstance(value, (list, tuple)):
        return len(value)
    if is_tensor_collection(value):
        return int(value.batch_size[0]) if value.batch_size else None
    return _row_count(value) if isinstance(value, Mapping) and value else None
