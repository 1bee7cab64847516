"""Rows of one column of a TensorDict: taking a range, joining several.

Jagged tensors are split and joined through their offsets: torch has neither slicing nor `cat` for them along the batch
dimension, and `chunk` gives wrong or no results depending on its version. What is taken owns its memory: pickling a
slice of a tensor carries the whole storage, so four slices sent to four ranks would carry the batch four times.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tensordict import LazyStackedTensorDict, NonTensorData, TensorDict, TensorDictBase

from transferqueue.errors import SchemaMismatchError
from transferqueue.metadata.extra_info import values_equal


def is_constant(column: Any) -> bool:
    """A batch-wide value (`NonTensorData`), as opposed to a column with a value per row (`NonTensorStack`)."""
    return isinstance(column, NonTensorData)


def take_rows(column: Any, start: int, stop: int) -> Any:
    """Rows [start, stop) of a column, as a copy of its own. Autograd history is left behind."""
    if is_constant(column):
        return NonTensorData(column.data, batch_size=[stop - start])
    if isinstance(column, torch.Tensor):
        detached = column.detach()
        if not detached.is_nested:
            return detached[start:stop].clone(memory_format=torch.contiguous_format)
        if detached.layout is torch.jagged:
            return _take_jagged(detached, start, stop)
        return _strided_nested(detached.unbind()[start:stop], detached.dtype)
    if isinstance(column, LazyStackedTensorDict) and column.stack_dim == 0:
        rows = list(column.tensordicts[start:stop])
        return type(column)(*rows) if rows else column[start:stop]
    if isinstance(column, TensorDictBase):
        return TensorDict(
            {name: take_rows(inner, start, stop) for name, inner in column.items()}, batch_size=[stop - start]
        )
    raise SchemaMismatchError(f"a column of type {type(column).__name__} cannot be split by rows")


def join_columns(name: str, columns: Sequence[Any]) -> Any:
    """The rows of several columns one after the other, in one new column.

    Batch-wide values that are equal stay one value; others become a list in the order of the pieces, as in `concat`
    of metadata. Jagged and dense pieces join to a jagged column. `SchemaMismatchError` where shapes do not fit.
    """
    first = columns[0]
    if all(is_constant(column) for column in columns):
        return _join_constants(columns)
    if all(isinstance(column, torch.Tensor) for column in columns):
        return _join_tensors(name, [column.detach() for column in columns])
    if all(isinstance(column, LazyStackedTensorDict) for column in columns):
        rows = [row for column in columns for row in column.tensordicts]
        return type(first)(*rows) if rows else first
    if all(isinstance(column, TensorDictBase) and not is_constant(column) for column in columns):
        names = list(first.keys())
        if any(set(column.keys()) != set(names) for column in columns):
            raise SchemaMismatchError(f"field {name!r}: the pieces hold different nested fields", fields=(name,))
        rows_total = sum(column.batch_size[0] for column in columns)
        joined = {inner: join_columns(f"{name}.{inner}", [column.get(inner) for column in columns]) for inner in names}
        return TensorDict(joined, batch_size=[rows_total])
    kinds = sorted({type(column).__name__ for column in columns})
    raise SchemaMismatchError(f"field {name!r}: pieces of kinds {', '.join(kinds)} cannot be joined", fields=(name,))


def _take_jagged(column: torch.Tensor, start: int, stop: int) -> torch.Tensor:
    ragged_dim = _ragged_dim(column)
    if _has_holes(column):
        return _jagged_from_rows(column.unbind()[start:stop], ragged_dim, like=column)
    offsets = _offsets_of(column)[start : stop + 1]
    values = column.values()
    taken = values.narrow(ragged_dim - 1, int(offsets[0]), int(offsets[-1] - offsets[0]))
    return torch.nested.nested_tensor_from_jagged(
        taken.clone(memory_format=torch.contiguous_format), offsets=offsets - offsets[0], jagged_dim=ragged_dim
    )


def _join_tensors(name: str, columns: Sequence[torch.Tensor]) -> torch.Tensor:
    dtypes = sorted({str(column.dtype) for column in columns})
    if len(dtypes) > 1:
        raise SchemaMismatchError(f"field {name!r}: pieces of dtypes {', '.join(dtypes)}", fields=(name,))
    jagged = next((column for column in columns if column.is_nested and column.layout is torch.jagged), None)
    try:
        if jagged is not None:
            return _join_jagged(columns, _ragged_dim(jagged), like=jagged)
        if any(column.is_nested for column in columns):
            return _strided_nested([row for column in columns for row in column.unbind()], columns[0].dtype)
        return torch.cat(list(columns))
    except RuntimeError as error:
        shapes = ", ".join(str(tuple(column.shape)) for column in columns)
        raise SchemaMismatchError(
            f"field {name!r}: pieces of shapes {shapes} cannot be joined: {error}", fields=(name,)
        ) from error


def _join_jagged(columns: Sequence[torch.Tensor], ragged_dim: int, like: torch.Tensor) -> torch.Tensor:
    simple = all(c.is_nested and c.layout is torch.jagged and not _has_holes(c) for c in columns)
    if not simple or any(_ragged_dim(column) != ragged_dim for column in columns):
        return _jagged_from_rows([row for column in columns for row in column.unbind()], ragged_dim, like=like)
    values = torch.cat([column.values() for column in columns], dim=ragged_dim - 1)
    lengths = torch.cat([_offsets_of(column).diff() for column in columns])
    return torch.nested.nested_tensor_from_jagged(values, offsets=_offsets(lengths), jagged_dim=ragged_dim)


def _jagged_from_rows(rows: Sequence[torch.Tensor], ragged_dim: int, like: torch.Tensor) -> torch.Tensor:
    nothing = like.values().narrow(ragged_dim - 1, 0, 0)
    values = torch.cat(list(rows) or [nothing], dim=ragged_dim - 1)
    lengths = torch.tensor([row.shape[ragged_dim - 1] for row in rows], dtype=torch.int64)
    return torch.nested.nested_tensor_from_jagged(values, offsets=_offsets(lengths), jagged_dim=ragged_dim)


def nested_like(column: torch.Tensor, rows: Sequence[torch.Tensor]) -> torch.Tensor:
    """A nested tensor of `rows` with the layout, ragged dimension and dtype of another."""
    if column.layout is torch.jagged:
        return _jagged_from_rows(rows, _ragged_dim(column), like=column)
    return _strided_nested(rows, column.dtype)


def _strided_nested(rows: Sequence[torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    return torch.nested.nested_tensor(list(rows), dtype=dtype, layout=torch.strided)


def _offsets(lengths: torch.Tensor) -> torch.Tensor:
    return torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])


def _offsets_of(column: torch.Tensor) -> torch.Tensor:
    offsets: torch.Tensor = column.offsets()  # type: ignore[attr-defined]  # only NestedTensor has it
    return offsets


def _ragged_dim(column: torch.Tensor) -> int:
    return int(getattr(column, "_ragged_idx", 1))


def _has_holes(column: torch.Tensor) -> bool:
    """Rows that do not lie end to end in `values()`: a jagged view with lengths of its own."""
    return getattr(column, "_lengths", None) is not None


def _join_constants(columns: Sequence[Any]) -> NonTensorData:
    values = [column.data for column in columns]
    rows_total = sum(column.batch_size[0] if column.batch_size else 0 for column in columns)
    joined = values[0] if all(values_equal(values[0], value) for value in values[1:]) else values
    return NonTensorData(joined, batch_size=[rows_total])
