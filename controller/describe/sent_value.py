"""One argument of one rank in a traced call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from tensordict import TensorDictBase

from transferqueue.controller.describe.text import ranges_text
from transferqueue.metadata import BatchMeta, KVBatchMeta
from transferqueue.workers.padding_mask import PaddedBatch
from transferqueue.workers.row_batch import kind_of

_SHOWN = 6
_MAX_REPR = 40


@dataclass(frozen=True)
class SentValue:
    """What a rank got as one argument.

    Attributes:
        kind: name of its type.
        rows: of a batch, pads included; None for what has no rows.
        which: the rows themselves, as far as they have names: ranges of global indexes, or keys.
        pads: how many of the rows are pads, the last ones.
        shapes: field -> shape and dtype, in words; of metadata as its schema has them, per row.
    """

    kind: str
    rows: int | None = None
    which: str = ""
    pads: int = 0
    shapes: Mapping[str, str] = field(default_factory=dict)
    text: str = ""

    def __str__(self) -> str:
        if self.rows is None:
            return " ".join(part for part in (self.kind, self.text) if part)
        parts = [f"{self.kind} {self.rows} rows" + (f" [{self.which}]" if self.which else "")]
        if self.pads:
            parts.append(f"{self.pads} pad{'s' if self.pads != 1 else ''}")
        shown = [f"{name} {shape}".strip() for name, shape in list(self.shapes.items())[:_SHOWN]]
        more = len(self.shapes) - len(shown)
        return ", ".join([*parts, *shown, *([f"{more} more fields"] if more > 0 else [])])


def sent_value(value: Any, pads: int = 0) -> SentValue:
    """The description of a value; `pads`: those of a batch by value, which does not say it itself. Keeps nothing of
    the value, and copies none of its data."""
    if isinstance(value, PaddedBatch):
        return sent_value(value.batch, value.pads)
    kind = type(value).__name__
    if isinstance(value, BatchMeta):
        shapes = {name: _schema_text(value, name) for name in value.field_names}
        return SentValue(kind, value.size, ranges_text(list(value.global_indexes)), value.num_padding, shapes)
    if isinstance(value, KVBatchMeta):
        shapes = dict.fromkeys(value.fields or (), "")
        return SentValue(kind, value.size, _some(value.keys), value.num_padding, shapes)
    if isinstance(value, TensorDictBase):
        return SentValue(kind, _rows_of(value), "", pads, _tensor_shapes(value))
    batch_kind = kind_of(value)
    if batch_kind is not None:
        tensors = getattr(value, "batch", None)
        shapes = _tensor_shapes(tensors) if isinstance(tensors, TensorDictBase) else {}
        columns = getattr(value, "non_tensor_batch", None)
        if isinstance(columns, Mapping):
            shapes.update({name: _shape_text(column) for name, column in columns.items()})
        return SentValue(kind, batch_kind.size(value), "", pads, shapes)
    if isinstance(value, (torch.Tensor, np.ndarray)):
        return SentValue(kind, text=_shape_text(value))
    if isinstance(value, (list, tuple, dict, set)):
        return SentValue(kind, text=f"of {len(value)}")
    shown = repr(value) if isinstance(value, (str, bytes, int, float, bool, type(None))) else ""
    return SentValue(kind, text=shown if len(shown) <= _MAX_REPR else f"{shown[: _MAX_REPR - 3]}...")


def _schema_text(meta: BatchMeta, name: str) -> str:
    schema = meta.field_schema[name]
    if schema.get("is_non_tensor"):
        return "objects"
    dtype = str(schema["dtype"]).removeprefix("torch.")
    return f"jagged {dtype}" if schema.get("is_nested") else f"{tuple(schema['shape'])} {dtype}"


def _tensor_shapes(batch: TensorDictBase) -> dict[str, str]:
    return {name: _shape_text(batch.get(name)) for name in batch.keys()}


def _shape_text(column: Any) -> str:
    if isinstance(column, torch.Tensor) and column.is_nested:
        return f"jagged {str(column.dtype).removeprefix('torch.')}"
    if isinstance(column, (torch.Tensor, np.ndarray)):
        return f"{tuple(column.shape)} {str(column.dtype).removeprefix('torch.')}"
    return type(column).__name__


def _rows_of(batch: TensorDictBase) -> int | None:
    return int(batch.batch_size[0]) if batch.batch_size else None


def _some(keys: Iterable[str]) -> str:
    listed = list(keys)
    more = len(listed) - _SHOWN
    return ", ".join(listed[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
