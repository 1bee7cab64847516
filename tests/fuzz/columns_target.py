"""Blocks of every form of field, with schemas, offsets and bytes that were damaged, read as a batch."""

from __future__ import annotations

import atexit
import contextlib
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from tensordict import NonTensorStack, TensorDict
from torch.utils import dlpack

from tests.fuzz.edits import Input, edited, edits_of
from tests.fuzz.targets import Target
from tests.unit.native.native_session import new_session
from transferqueue import _native
from transferqueue.codec.decode import decode
from transferqueue.codec.encode import plan_put
from transferqueue.errors import (
    CorruptSegmentError,
    LayoutMismatchError,
    PickleNotAllowedError,
    SchemaMismatchError,
)

_ROWS = 3


@dataclass(frozen=True)
class Encoded:
    """One field in a block of its own, as the encoder laid it out."""

    layout: _native.FieldLayout
    block: bytes


def _columns() -> dict[str, Any]:
    jagged = torch.nested.nested_tensor([torch.arange(n) for n in (1, 4, 2)], layout=torch.jagged)
    strided = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(1, 3), torch.ones(4, 5)])
    inner = TensorDict({"deep": torch.arange(12).view(3, 2, 2)}, batch_size=[3, 2])
    return {
        "dense": torch.arange(24.0).view(3, 8),
        "bits": torch.ones(3, 5, dtype=torch.bfloat16),
        "jagged": jagged,
        "strided": strided,
        "stack": [torch.zeros(2), torch.zeros(1, dtype=torch.int8), torch.zeros(2, 2)],
        "text": np.array(["a", "bcd", "e"]),
        "values": ["text", {"a": [1, None]}, 2.5],
        "objects": [(1, 2), {"t": torch.arange(3), "n": np.arange(2)}, np.float32(1)],
        "pickled": [{1, 2}, frozenset(), {3}],
        "nested": inner,
    }


class _Place:
    def __init__(self) -> None:
        self._held = contextlib.ExitStack()
        session = self._held.enter_context(new_session(16 << 20, 8 << 20, 16 << 20))
        self.store = session.attach()
        self._held.callback(self.store.close)
        atexit.register(self.close)
        self.fields = [self._encode(name, column) for name, column in _columns().items()]

    def close(self) -> None:
        self._held.close()
        place.cache_clear()

    def _encode(self, name: str, column: Any) -> Encoded:
        if isinstance(column, list):
            column = NonTensorStack(*column)
        plan = plan_put({name: column}, _ROWS)
        reservation = self.store.reserve(plan.nbytes, 5.0)
        plan.write(reservation)
        block = dlpack.from_dlpack(reservation.writable(0, plan.nbytes)).numpy().tobytes()
        reservation.abandon()
        return Encoded(plan.layouts[0], block)

    def publish(self, encoded: Encoded, given: Input) -> None:
        layout = encoded.layout
        block, schema = encoded.block, layout.schema
        numbers = [layout.kind, layout.data_offset, layout.data_nbytes, layout.row_nbytes, layout.offsets_offset]
        for _ in range(given.number() % 4):
            kind = given.number() % 4
            if kind == 0:
                schema = edited(schema, given)
            elif kind == 1 and layout.kind == _native.RAGGED:  # an offset
                at = layout.offsets_offset + 8 * given.below(_ROWS + 1)
                block = block[:at] + given.odd_number().to_bytes(8, "little") + block[at + 8 :]
            elif kind == 2:
                numbers[given.below(len(numbers))] = given.odd_number() >> 1
            else:
                size = len(block)
                block = edited(block, given)[:size].ljust(size, b"\0")
        raw = np.frombuffer(block, np.uint8)
        reservation = self.store.reserve(len(block), 5.0)
        try:
            reservation.copy_in([(0, raw.ctypes.data, len(block))])
            fields = [_native.FieldLayout("f", *numbers, schema=schema)]
            self.store.publish("p", count=_ROWS, reservation=reservation, fields=fields)
        except (ValueError, TypeError):  # the index would not have it: nothing that could be read
            reservation.abandon()


@cache
def place() -> _Place:
    return _Place()


def look_at(value: Any) -> None:
    """Touches all of a column."""
    if isinstance(value, torch.Tensor):
        for part in value.unbind() if value.is_nested else [value]:
            if part.numel() < 1 << 16:
                part.view(torch.uint8) if part.dtype.itemsize == 1 else part.clone()
    elif isinstance(value, NonTensorStack):
        for row in value.tolist():
            if isinstance(row, torch.Tensor):
                row.numel()
    elif isinstance(value, TensorDict):
        for key in value.keys():
            look_at(value.get(key))


def run(data: bytes) -> None:
    given, held = Input(data), place()
    for _ in range(1 + given.number() % 2):
        held.publish(held.fields[given.number() % len(held.fields)], given)
    mode = ("cow", "shared", "copy")[given.number() % 3]
    layout = ("stored", "jagged")[given.number() % 2]
    try:
        found, indexes, *_ = held.store.production("p", [])
        if not found or not len(indexes):
            return
        resolved = held.store.resolve("p", indexes=indexes)
        copy_below = 1 if given.number() % 2 else 1 << 20
        batch, _, _ = decode(resolved, mode=mode, copy_below=copy_below, allow_pickle=False, layout=layout)
        look_at(batch)
    except (CorruptSegmentError, LayoutMismatchError, PickleNotAllowedError, SchemaMismatchError):
        pass
    finally:
        batch = resolved = None
        held.store.clear_partition("p")


def target() -> Target:
    seeds = [
        bytes([0, number]) + tail
        for number in range(len(place().fields))
        for tail in (b"", *(bytes([1 + n % 3, n % 4]) + edit for n, edit in enumerate(edits_of(24, seed=number))))
    ]
    return Target("columns", run, seeds, place().close)
