"""What a `DataProto` holds, for people."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tensordict import TensorDictBase

from transferqueue.workers.data_proto.parts import Parts


def nbytes(data: Parts) -> tuple[int, int]:
    """Bytes of the tensors and of the arrays."""
    tensors = sum(_tensor_nbytes(column) for _, column in _entries(data.batch))
    return tensors, sum(int(column.nbytes) for column in data.non_tensor_batch.values())


def describe(data: Parts) -> str:
    """One line per entry, under the name of its part."""
    lines = ["batch"]
    for name, column in _entries(data.batch):
        if isinstance(column, torch.Tensor):
            lines.append(f"  {name}: {tuple(column.shape)} ({column.dtype}) {column.device}")
        else:
            lines.append(f"  {name}: {type(column).__name__}")
    lines.append("non_tensor_batch")
    lines.extend(f"  {name}: ndarray{column.shape} ({column.dtype})" for name, column in data.non_tensor_batch.items())
    lines.append("meta_info")
    lines.extend(f"  {name}: {_type_text(value)}" for name, value in data.meta_info.items())
    return "\n".join(lines)


def _entries(batch: TensorDictBase | None) -> list[tuple[Any, Any]]:
    return [] if batch is None else [(name, batch.get(name)) for name in batch.keys()]


def _type_text(value: Any) -> str:
    if isinstance(value, list):
        return f"list[{'|'.join(sorted({_type_text(item) for item in value[:3]})) or '...'}]"
    if isinstance(value, tuple):
        return f"tuple({', '.join(map(_type_text, value))})"
    if isinstance(value, dict) and value:
        key, inner = next(iter(value.items()))
        return f"dict[{_type_text(key)}: {_type_text(inner)}]"
    if isinstance(value, np.ndarray):
        return f"ndarray{value.shape} ({value.dtype})"
    return type(value).__name__


def _tensor_nbytes(column: Any) -> int:
    if isinstance(column, torch.Tensor):
        plain = column.values() if column.is_nested and column.layout is torch.jagged else column
        return plain.numel() * plain.element_size()
    return sum(_tensor_nbytes(inner) for inner in column.values()) if isinstance(column, TensorDictBase) else 0
