"""One row of a `DataProto`, and rows back into one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from tensordict import TensorDictBase

if TYPE_CHECKING:
    from transferqueue.workers.data_proto.data_proto import DataProto


@dataclass
class DataProtoItem:
    """One row: its tensors without the batch dimension, its Python values, and the values of the whole batch."""

    batch: TensorDictBase | None = None
    non_tensor_batch: dict[str, Any] = field(default_factory=dict)
    meta_info: dict[str, Any] = field(default_factory=dict)


def collate_fn(x: Sequence[DataProtoItem]) -> DataProto:
    """A `DataProto` of these rows, which have the same fields; copies. Batch-wide values are left out.

    Raises `DataProtoError` for rows with different fields.
    """
    from transferqueue.workers.data_proto.data_proto import DataProto
    from transferqueue.workers.data_proto.errors import DataProtoError

    names = list(x[0].non_tensor_batch) if x else []
    for position, row in enumerate(x):
        if set(row.non_tensor_batch) != set(names):
            found = sorted(row.non_tensor_batch)
            raise DataProtoError(f"row {position} has the Python columns {found}, the first {sorted(names)}")
    batches: list[Any] = [row.batch for row in x if row.batch is not None]
    return DataProto(
        batch=_stacked(batches) if batches else None,
        non_tensor_batch={name: column_of([row.non_tensor_batch[name] for row in x]) for name in names},
    )


def _stacked(batches: list[Any]) -> Any:
    return torch.stack(batches).contiguous()


def column_of(values: Sequence[Any]) -> np.ndarray[Any, Any]:
    """A column [rows] of Python values. Lists stay one value per row, whether or not they are equally long.

    Numpy scalars of one dtype keep it, and arrays of one shape and dtype are stacked: that is what indexing a column
    of such gives.
    """
    first = values[0] if len(values) else None
    same = all(type(value) is type(first) for value in values)
    if same and isinstance(first, np.generic) and len({value.dtype for value in values}) == 1:
        return np.array(values, dtype=first.dtype)
    if same and isinstance(first, np.ndarray) and len({(value.dtype, value.shape) for value in values}) == 1:
        return np.stack(values)
    return column_of_objects(values)


def column_of_objects(values: Sequence[Any]) -> np.ndarray[Any, Any]:
    """A column [rows] whose elements are these very values."""
    column = np.empty(len(values), dtype=object)
    for position, value in enumerate(values):
        column[position] = value
    return column


def object_array(values: Any) -> np.ndarray[Any, Any]:
    """``np.array(values, dtype=object)``, also for arrays whose shapes numpy cannot join."""
    try:
        return np.array(values, dtype=object)
    except ValueError:
        return column_of_objects(list(values))
