"""Rows of a batch as smaller batches that share its memory."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase

from transferqueue.codec.nested_tensors import jagged_over, jagged_parts


def slice_rows(batch: TensorDictBase, start: int, stop: int) -> TensorDict:
    """Rows [start, stop) as a TensorDict of batch size [stop - start]. Tensors are views of the batch's, jagged ones
    included, which torch cannot slice along the batch; rows of strided nested tensors are copied."""
    columns = {str(name): _slice(batch.get(name), start, stop) for name in batch.keys()}
    return TensorDict(columns, batch_size=[stop - start])


def _slice(column: Any, start: int, stop: int) -> Any:
    if isinstance(column, torch.Tensor):
        if not column.is_nested:
            return column[start:stop]
        return _slice_nested(column, start, stop)
    if isinstance(column, TensorDictBase) and any(
        isinstance(inner, torch.Tensor) and inner.is_nested for inner in column.values()
    ):
        return slice_rows(column, start, stop)
    return column[start:stop]


def _slice_nested(column: torch.Tensor, start: int, stop: int) -> torch.Tensor:
    parts = jagged_parts(column)
    if parts is None:
        return torch.nested.nested_tensor(
            [row.detach() for row in column.unbind()[start:stop]], dtype=column.dtype, layout=torch.strided
        )
    if parts.lengths is not None:  # rows with space between them: a view of a jagged tensor
        rows = [row.detach() for row in column.unbind()[start:stop]]
        values = torch.cat(rows or [parts.values.narrow(parts.ragged_dim, 0, 0)], dim=parts.ragged_dim)
        lengths = torch.tensor([row.shape[parts.ragged_dim] for row in rows], dtype=torch.int64)
        offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    else:
        offsets = parts.offsets[start : stop + 1]
        first = int(offsets[0])
        values = parts.values.narrow(parts.ragged_dim, first, int(offsets[-1]) - first)
        offsets = offsets - first
        lengths = offsets.diff()
    shortest, longest = (int(lengths.min()), int(lengths.max())) if len(lengths) else (0, 0)
    sliced: torch.Tensor = jagged_over(
        values.movedim(parts.ragged_dim, 0) if parts.ragged_dim else values,
        offsets,
        ragged_dim=parts.ragged_dim,
        shortest=shortest,
        longest=longest,
    )
    return sliced
