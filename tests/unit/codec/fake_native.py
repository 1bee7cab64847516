"""One block after another in ordinary memory, with the methods of the native core that the codec calls.

It earns its place by what the real store does not let a test see: which bytes lie where, how many views are alive,
pieces in any order and division, mappings that fail.
"""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from transferqueue import _native
from transferqueue.codec import PutPlan
from transferqueue.codec.dtypes import dlpack_type, from_name

_DTYPES = ("uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "bool", "complex64")


class Memory:
    """Page-aligned bytes; `alive` counts the capsules and tensors made of them that still exist."""

    def __init__(self, nbytes: int) -> None:
        self._owner = np.full(nbytes + 4096, 0xEE, dtype=np.uint8)
        start = -self._owner.ctypes.data % 4096
        self.bytes = self._owner[start : start + nbytes]
        self.alive = 0

    def capsule(self, offset: int, nbytes: int) -> Any:
        assert offset >= 0
        assert offset + nbytes <= len(self.bytes)
        assert nbytes > 0
        # An array of its own over the same address, so that its death is the death of the view.
        buffer = (ctypes.c_uint8 * nbytes).from_address(self.bytes.ctypes.data + offset)
        buffer.memory = self
        array = np.ctypeslib.as_array(buffer)
        self.alive += 1
        weakref.finalize(buffer, self._died)
        return torch.utils.dlpack.to_dlpack(torch.from_numpy(array))

    def _died(self) -> None:
        self.alive -= 1


class FakeReservation:
    def __init__(self, nbytes: int) -> None:
        self.memory = Memory(nbytes)
        self.nbytes = nbytes
        self.offset = 0
        self.copied_nbytes = 0
        self.mapped = False

    def copy_in(self, writes: Sequence[tuple[int, int, int]]) -> None:
        for offset, address, nbytes in writes:
            assert offset >= 0
            assert offset + nbytes <= self.nbytes
            ctypes.memmove(self.memory.bytes.ctypes.data + offset, address, nbytes)
            self.copied_nbytes += nbytes

    def writable(self, offset: int, nbytes: int) -> Any:
        self.copied_nbytes += nbytes
        return self.memory.capsule(offset, nbytes)

    def map_for_producer(self) -> None:
        self.mapped = True

    def producer_tensor(self, offset: int, nbytes: int) -> Any:
        assert self.mapped
        return self.memory.capsule(offset, nbytes)

    def producer_tensors(self, plan: _native.TensorPlan) -> dict[str, Any]:
        self.map_for_producer()
        tensors: dict[str, Any] = {}
        for name, code, bits, shape, offset in plan.columns:
            dtype = _dtype_of(code, bits)
            nbytes = math.prod(shape) * dtype.itemsize
            raw = torch.empty(0, dtype=torch.uint8)
            if nbytes:
                raw = torch.from_dlpack(self.memory.capsule(offset, nbytes))
            tensors[name] = raw.view(dtype).view(shape)
        return tensors

    def producer_tensors_alive(self) -> int:
        return self.memory.alive


def _dtype_of(code: int, bits: int) -> torch.dtype:
    return next(dtype for name in _DTYPES if dlpack_type(dtype := from_name(name)) == (code, bits, False))


class Block:
    def __init__(self, memory: Memory, layouts: Sequence[_native.FieldLayout], n_rows: int) -> None:
        self.memory = memory
        self.layouts = {layout.name: layout for layout in layouts}
        self.n_rows = n_rows


class FakeStore:
    """Rows are numbered over all puts; a later put on the same rows overwrites."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.cells: dict[str, dict[int, tuple[int, int]]] = {}
        self.n_rows = 0

    def put(self, plan: PutPlan, rows: Sequence[int] | None = None) -> range | Sequence[int]:
        reservation = FakeReservation(plan.nbytes)
        plan.write(reservation)  # type: ignore[arg-type]
        assert reservation.memory.alive == 0
        return self.publish(reservation, plan.layouts, plan.n_rows, rows)

    def publish(
        self,
        reservation: FakeReservation,
        layouts: Sequence[_native.FieldLayout],
        n: int,
        rows: Sequence[int] | None = None,
    ) -> range | Sequence[int]:
        self.blocks.append(Block(reservation.memory, layouts, n))
        if rows is None:
            rows = range(self.n_rows, self.n_rows + n)
            self.n_rows += n
        for layout in layouts:
            cells = self.cells.setdefault(layout.name, {})
            for position, row in enumerate(rows):
                cells[row] = (len(self.blocks) - 1, position)
        return rows

    def resolve(self, rows: Sequence[int], fields: Sequence[str] | None = None, *, merge: bool = True) -> FakeResolved:
        return FakeResolved(self, list(rows), sorted(self.cells) if fields is None else list(fields), merge)


class FakeResolved:
    """`merge` false: every row is a piece of its own, as the contract also allows."""

    def __init__(self, store: FakeStore, rows: list[int], fields: list[str], merge: bool) -> None:
        self.store = store
        self.fields = fields
        self.indexes = np.array(rows, dtype=np.int64)
        self.n_blocks = len(store.blocks)
        self.mappings_fail = False
        self.viewed: list[tuple[int, int, int, bool]] = []
        self._pieces = {name: self._cut(store.cells.get(name, {}), rows, merge) for name in fields}

    @staticmethod
    def _cut(cells: dict[int, tuple[int, int]], rows: list[int], merge: bool) -> np.ndarray[Any, Any]:
        pieces: list[list[int]] = []
        for position, row in enumerate(rows):
            if row not in cells:
                continue
            block, inside = cells[row]
            last = pieces[-1] if pieces else None
            if merge and last and last[2] == block and last[3] + last[1] == inside and last[0] + last[1] == position:
                last[1] += 1
            else:
                pieces.append([position, 1, block, inside])
        return np.array(pieces, dtype=np.int64).reshape(-1, 4)

    @property
    def n_rows(self) -> int:
        return len(self.indexes)

    def columns(
        self, types: Any, fields: Sequence[str], **how: Any
    ) -> tuple[dict[str, None], list[Any], list[Any], int, int]:
        """Leaves every column to the codec."""
        return dict.fromkeys(fields), [(name, None) for name in fields], [], 0, 0

    def pieces(self, field: int) -> np.ndarray[Any, Any]:
        return self._pieces[self.fields[field]]

    def piece_list_id(self, field: int) -> int:
        return field

    def block_rows(self, block: int) -> int:
        return self.store.blocks[block].n_rows

    def layout(self, field: int, block: int) -> _native.FieldLayout | None:
        return self.store.blocks[block].layouts.get(self.fields[field])

    def view(self, block: int, offset: int, nbytes: int, *, shared: bool = False) -> Any:
        if self.mappings_fail:
            raise MemoryError("no further mapping")
        self.viewed.append((block, offset, nbytes, shared))
        return self.store.blocks[block].memory.capsule(offset, nbytes)

    def view_address(self, block: int, offset: int) -> int:
        return int(self.store.blocks[block].memory.bytes.ctypes.data) + offset

    def _rows(self, field: int, pieces: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
        rows = []
        for _, count, block, first in pieces.tolist():
            layout = self.layout(field, block)
            assert layout is not None
            assert first + count <= self.block_rows(block)
            raw = self.store.blocks[block].memory.bytes
            for row in range(first, first + count):
                if layout.kind == _native.DENSE:
                    start = layout.data_offset + row * layout.row_nbytes
                    rows.append(raw[start : start + layout.row_nbytes])
                else:
                    assert layout.kind == _native.RAGGED
                    at = layout.offsets_offset + 8 * row
                    begin, end = raw[at : at + 16].view(np.int64).tolist()
                    rows.append(raw[layout.data_offset + begin : layout.data_offset + end])
        return rows

    def copy_rows(self, field: int, pieces: np.ndarray[Any, Any], destination: int, nbytes: int) -> int:
        joined = np.concatenate(self._rows(field, pieces))
        assert len(joined) <= nbytes
        ctypes.memmove(destination, joined.ctypes.data, len(joined))
        return len(joined)

    def row_nbytes(self, field: int, pieces: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.array([len(row) for row in self._rows(field, pieces)], dtype=np.int64)

    def count(self, viewed_nbytes: int, copied_nbytes: int) -> None:
        self.counted = (viewed_nbytes, copied_nbytes)

    def release(self) -> None:
        pass
