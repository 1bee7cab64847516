"""Rows of batches in memory: choosing some, and putting the rows of several batches into one order.

Needed at two seams only: a put through padded metadata leaves the pads out, and a get of rows from several partitions
joins what was read from each. Both copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from tensordict import NonTensorStack, TensorDict, TensorDictBase
from tensordict.tensorclass import is_non_tensor

from transferqueue.errors import SchemaMismatchError

Positions = npt.NDArray[np.int64]


def choose_rows(batch: TensorDictBase | dict[str, Any], positions: Positions) -> dict[str, Any]:
    """The rows at `positions` as a dict of columns that `plan_put` takes; batch-wide constants stay what they are."""
    return {str(name): _choose(batch.get(name), positions) for name in batch.keys()}


def _choose(column: Any, positions: Positions) -> Any:
    if isinstance(column, torch.Tensor):
        if not column.is_nested:
            return column[torch.from_numpy(positions)]
        rows = column.unbind()
        return _nested([rows[position] for position in positions.tolist()], like=column)
    if isinstance(column, (NonTensorStack, list)):
        values = column.tolist() if isinstance(column, NonTensorStack) else column
        return [values[position] for position in positions.tolist()]
    if is_non_tensor(column):
        return column
    return choose_rows(column, positions)


def join_rows(batches: Sequence[TensorDictBase], order: Positions) -> TensorDict:
    """One batch whose row i is row ``order[i]`` of `batches` laid one after the other. All have the same fields.

    Raises:
        SchemaMismatchError: a field whose rows have different types in the batches.
    """
    columns = {str(name): _join(str(name), [batch.get(name) for batch in batches], order) for name in batches[0].keys()}
    return TensorDict(columns, batch_size=[len(order)])


def _join(name: str, columns: Sequence[Any], order: Positions) -> Any:
    first = columns[0]
    if all(isinstance(column, torch.Tensor) and column.dtype == first.dtype for column in columns):
        if not any(column.is_nested for column in columns):
            if len({column.shape[1:] for column in columns}) == 1:
                return torch.cat(list(columns))[torch.from_numpy(order)]
        elif all(column.is_nested and column.layout == first.layout for column in columns):
            rows = [row for column in columns for row in column.unbind()]
            return _nested([rows[position] for position in order.tolist()], like=first)
    elif all(isinstance(column, NonTensorStack) for column in columns):
        values = [value for column in columns for value in column.tolist()]
        return NonTensorStack(*[values[position] for position in order.tolist()])
    elif all(isinstance(column, TensorDictBase) and not is_non_tensor(column) for column in columns):
        return join_rows(columns, order)
    raise SchemaMismatchError(
        f"field {name!r} has rows of different types in the partitions of this metadata; read them one partition at a "
        "time (chunk_by_partition)",
        fields=(name,),
    )


def _nested(rows: list[torch.Tensor], like: torch.Tensor) -> torch.Tensor:
    """A nested tensor of `rows` with the layout and ragged dimension of `like`."""
    if like.layout is not torch.jagged:
        return torch.nested.nested_tensor(rows, dtype=like.dtype, layout=torch.strided)
    ragged_dim = int(getattr(like, "_ragged_idx", 1))
    nothing = like.values().narrow(ragged_dim - 1, 0, 0)
    lengths = torch.tensor([0, *(row.shape[ragged_dim - 1] for row in rows)], dtype=torch.int64)
    return torch.nested.nested_tensor_from_jagged(
        torch.cat(rows or [nothing], dim=ragged_dim - 1), offsets=lengths.cumsum(0), jagged_dim=ragged_dim
    )
