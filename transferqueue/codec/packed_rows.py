"""A Python row in two parts: its skeleton, and the buffers of its tensors and arrays, aligned beside it.

    row     u32 skeleton kind | u32 buffers | u64 skeleton bytes | (u64 offset, u64 bytes) per buffer | skeleton |
            padding | buffer | padding | ...            all offsets from the start of the row, everything to 64 bytes

A reader that views the rows hands out their tensors without copying them, however large.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from transferqueue.codec.encoded_field import CACHE_LINE, EncodedField
from transferqueue.codec.tensor_rows import own_storage
from transferqueue.errors import CorruptSegmentError

if TYPE_CHECKING:
    from numpy.typing import NDArray

TREE, PICKLE = 0, 1  # skeleton kinds
_HEAD = struct.Struct("<IIQ")
_BUFFER = struct.Struct("<QQ")


class Buffer(NamedTuple):
    """Bytes of one tensor or array: where they are, how many, and what keeps them there."""

    address: int
    nbytes: int
    owner: Any


class PackedRow(NamedTuple):
    kind: int
    skeleton: bytes
    buffers: list[Buffer]


def _padded(nbytes: int) -> int:
    return -(-nbytes // CACHE_LINE) * CACHE_LINE


def pack_rows(name: str, schema: bytes, rows: Sequence[PackedRow]) -> EncodedField:
    """A ragged field of `rows`; buffers are copied once, from where they are."""
    writes: list[tuple[int, int, int]] = []
    fronts: list[bytes] = []
    places: list[int] = []
    offsets = np.zeros(len(rows) + 1, dtype=np.int64)
    cursor = 0
    for position, row in enumerate(rows):
        table = _HEAD.size + _BUFFER.size * len(row.buffers)
        inside = _padded(table + len(row.skeleton))
        front = [_HEAD.pack(row.kind, len(row.buffers), len(row.skeleton))]
        for buffer in row.buffers:
            front.append(_BUFFER.pack(inside, buffer.nbytes))
            writes.append((cursor + inside, buffer.address, buffer.nbytes))
            inside += _padded(buffer.nbytes)
        front.append(row.skeleton)
        fronts.append(b"".join(front))
        places.append(cursor)
        cursor += inside
        offsets[position + 1] = cursor
    joined = np.frombuffer(b"".join(fronts) or b"\0", dtype=np.uint8)
    address = joined.ctypes.data
    for place, whole in zip(places, fronts, strict=True):
        writes.append((place, address, len(whole)))
        address += len(whole)
    return EncodedField(name, schema, data_nbytes=cursor, offsets=offsets, writes=writes, keep=(rows, joined))


class RowBuffers:
    """The buffers of one stored row, on the row's memory; each made when asked for, with a storage of its own."""

    def __init__(self, row: torch.Tensor, table: list[tuple[int, int]]) -> None:
        self._row = row
        self._table = table

    def __len__(self) -> int:
        return len(self._table)

    def tensor(self, index: int) -> torch.Tensor:
        """uint8, 1-D."""
        offset, nbytes = self._table[index]
        return own_storage(self._row[offset : offset + nbytes])

    def array(self, index: int) -> NDArray[np.uint8]:
        """uint8, 1-D."""
        found: NDArray[np.uint8] = self.tensor(index).numpy()
        return found


def unpack_rows(data: torch.Tensor, offsets: NDArray[np.int64]) -> Iterator[tuple[int, memoryview, RowBuffers]]:
    """(skeleton kind, skeleton, buffers) of each row in `data` (uint8, rows at `offsets`); nothing is copied."""
    bounds = offsets.tolist()
    raw = memoryview(data.numpy())  # type: ignore[arg-type]  # numpy's stubs: not a Buffer before 3.12
    for start, end in pairwise(bounds):
        try:
            kind, count, skeleton_nbytes = _HEAD.unpack_from(raw[start:end])
            front = _HEAD.size + _BUFFER.size * count
            if front + skeleton_nbytes > end - start:
                raise CorruptSegmentError(f"a stored row of {end - start} bytes says that it is longer")
            table = list(_BUFFER.iter_unpack(raw[start + _HEAD.size : start + front]))
        except struct.error as error:
            raise CorruptSegmentError(f"a stored row of {end - start} bytes has no room for its front") from error
        if any(offset + nbytes > end - start for offset, nbytes in table):
            raise CorruptSegmentError(f"a buffer of a stored row lies outside of its {end - start} bytes")
        yield kind, raw[start + front : start + front + skeleton_nbytes], RowBuffers(data[start:end], table)
