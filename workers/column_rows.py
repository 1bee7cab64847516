"""Rows of one column by position: any order, any number of times."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from tensordict import LazyStackedTensorDict, NonTensorData, TensorDict, TensorDictBase

from transferqueue.errors import SchemaMismatchError
from transferqueue.workers.columns import is_constant, nested_like

Positions = npt.NDArray[np.int64]


def choose_rows(column: Any, positions: Positions) -> Any:
    """The rows at `positions` [n], none of them negative, as a new column. Dense tensors keep their autograd history.

    Raises `SchemaMismatchError` for a column that has no rows.
    """
    if is_constant(column):
        return NonTensorData(column.data, batch_size=[len(positions)])
    if isinstance(column, torch.Tensor):
        if not column.is_nested:
            return column[torch.from_numpy(positions).to(column.device)]
        rows = column.detach().unbind()
        return nested_like(column.detach(), [rows[position] for position in positions.tolist()])
    if isinstance(column, LazyStackedTensorDict) and column.stack_dim == 0:
        chosen: list[Any] = [column.tensordicts[position] for position in positions.tolist()]
        return type(column)(*chosen) if chosen else column[:0]
    if isinstance(column, TensorDictBase):
        return choose_batch(column, positions)
    raise SchemaMismatchError(f"a column of type {type(column).__name__} cannot be split by rows")


def choose_batch(batch: TensorDictBase, positions: Positions) -> TensorDict:
    """The rows at `positions` of every column."""
    columns = {name: choose_rows(batch.get(name), positions) for name in batch.keys()}
    return TensorDict(columns, batch_size=[len(positions), *batch.batch_size[1:]], device=batch.device)
