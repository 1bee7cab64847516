"""The field schema of a TensorDict, read off without touching its values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from transferqueue.errors import SchemaMismatchError
from transferqueue.metadata.field_schema import FieldSchema, dtype_name, plain_shape
from transferqueue.metadata.row_shapes import RowShapes

if TYPE_CHECKING:
    from tensordict import TensorDictBase


def schema_of_tensordict(batch: TensorDictBase) -> tuple[dict[str, FieldSchema], dict[str, RowShapes]]:
    """(field -> schema, nested field -> shape of each row) of a TensorDict whose first batch dimension is the rows.

    Raises `SchemaMismatchError` where an entry has another number of rows or is a TensorDict itself.
    """
    rows = int(batch.batch_size[0])
    schemas: dict[str, FieldSchema] = {}
    row_shapes: dict[str, RowShapes] = {}
    for name in batch.keys():
        schema, shapes = _schema_of_entry(str(name), _entry(batch, name), rows)
        schemas[str(name)] = schema
        if shapes is not None:
            row_shapes[str(name)] = shapes
    return schemas, row_shapes


def _entry(batch: TensorDictBase, name: Any) -> Any:
    """The column, or a list of its rows where a lazy stack cannot be stacked (rows of different shapes)."""
    from tensordict import LazyStackedTensorDict

    if not isinstance(batch, LazyStackedTensorDict):
        return batch.get(name)
    entries = [row.get(name) for row in batch.unbind(0)]
    if len({getattr(entry, "shape", None) for entry in entries}) == 1:
        return batch.get(name)
    return entries


def _schema_of_entry(name: str, value: Any, rows: int) -> tuple[FieldSchema, RowShapes | None]:
    import torch
    from tensordict import is_non_tensor, is_tensor_collection

    if isinstance(value, torch.Tensor):
        if _row_count(value) != rows:
            raise _row_mismatch(name, _row_count(value), rows)
        if value.is_nested:
            return _schema_of_nested(value)
        return FieldSchema(dtype_name(value.dtype), plain_shape(value.shape[1:])), None
    if is_tensor_collection(value):
        if not is_non_tensor(value):
            raise SchemaMismatchError(
                f"field {name!r} is itself a TensorDict: put its entries as fields of their own", fields=(name,)
            )
        own_shape = list(value.batch_size)
        if own_shape and own_shape[0] != rows:
            raise _row_mismatch(name, int(own_shape[0]), rows)
    if isinstance(value, list) and value and all(isinstance(row, torch.Tensor) for row in value):
        return _schema_of_rows(name, value)
    return FieldSchema(is_non_tensor=True), None


def _row_count(value: Any) -> int:
    return int(value.size(0)) if value.dim() else 0


def _row_mismatch(name: str, found: int, expected: int) -> SchemaMismatchError:
    return SchemaMismatchError(
        f"field {name!r} has {found} rows in a batch of {expected}", fields=(name,), expected=expected, found=found
    )


def _schema_of_nested(value: Any) -> tuple[FieldSchema, RowShapes]:
    import torch

    rows = int(value.size(0))
    if value.layout is torch.jagged:
        # Symbolic sizes become -1 in plain_shape, which marks the ragged dimension.
        shape = plain_shape(value.shape[1:])
        lengths = value.lengths()
        lengths = value.offsets().diff() if lengths is None else lengths
        matrix = np.empty((rows, len(shape)), dtype=np.int64)
        for dim, size in enumerate(shape):
            matrix[:, dim] = lengths.cpu().numpy() if size < 0 else size
    else:
        matrix = value._nested_tensor_size().cpu().numpy().astype(np.int64).reshape(rows, value.dim() - 1)
        shape = tuple(_common(column) for column in matrix.T)
    return FieldSchema(dtype_name(value.dtype), shape, is_nested=True), RowShapes(matrix)


def _common(sizes: Any) -> int:
    return int(sizes[0]) if len(sizes) and (sizes == sizes[0]).all() else -1


def _schema_of_rows(name: str, tensors: list[Any]) -> tuple[FieldSchema, RowShapes]:
    dtypes = {dtype_name(tensor.dtype) for tensor in tensors}
    if len(dtypes) > 1:
        raise SchemaMismatchError(
            f"field {name!r} has rows of different dtypes: {sorted(map(str, dtypes))}", fields=(name,), found=dtypes
        )
    schemas = [FieldSchema(dtypes.copy().pop(), plain_shape(tensor.shape)) for tensor in tensors]
    merged = schemas[0]
    for schema in schemas[1:]:
        merged = merged.merged(schema)
    return merged, RowShapes.of(tensor.shape for tensor in tensors)
