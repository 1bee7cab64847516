"""The bytes of the blocks, in fragments: (block, offset in the block, bytes).

Large fragments are written from the shared memory in which they lie, each as a batch of its own; small ones are
gathered into batches, one copy. Neither way holds more than `FRAGMENT_NBYTES` in memory of its own.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from transferqueue import _native
from transferqueue.checkpoint.libraries import pyarrow

FRAGMENT_NBYTES = 64 << 20
_SMALL_NBYTES = 256 << 10  # below it a batch of its own would cost more than the copy
_GATHERED_NBYTES = 8 << 20
_GATHERED_FRAGMENTS = 16384


def schema() -> Any:
    """Of the payload's file."""
    arrow = pyarrow()
    return arrow.schema([("block", arrow.int64()), ("offset", arrow.int64()), ("data", arrow.large_binary())])


def payload_batches(snapshot: _native.SessionSnapshot, parts: npt.NDArray[np.int64] | None = None) -> Iterator[Any]:
    """Record batches of fragments of `snapshot`, ascending by block.

    Args:
        parts: int64 [n, 5], as those of the snapshot, and before them the number that the block is given. None: all.
    """
    small: list[tuple[int, int, int, int]] = []
    gathered = 0
    if parts is None:
        parts = np.concatenate([snapshot.parts[:, :1], snapshot.parts], axis=1)
    for block, block_there, offset, source, nbytes in parts.tolist():
        if nbytes < _SMALL_NBYTES:
            small.append((block, offset, snapshot.address(block_there, source, nbytes), nbytes))
            gathered += nbytes
            if gathered >= _GATHERED_NBYTES or len(small) >= _GATHERED_FRAGMENTS:
                yield _gathered(small, gathered)
                small, gathered = [], 0
            continue
        for at in range(0, nbytes, FRAGMENT_NBYTES):
            length = min(FRAGMENT_NBYTES, nbytes - at)
            address = snapshot.address(block_there, source + at, length)
            # The snapshot, which holds the leases, lives as long as the buffer.
            data = pyarrow().foreign_buffer(address, length, base=snapshot)
            yield _batch([block], [offset + at], np.array([0, length], np.int64), data)
    if small:
        yield _gathered(small, gathered)


def _gathered(fragments: list[tuple[int, int, int, int]], nbytes: int) -> Any:
    data = np.empty(nbytes, np.uint8)
    ends = np.zeros(len(fragments) + 1, np.int64)
    np.cumsum([fragment[3] for fragment in fragments], out=ends[1:])
    start = data.ctypes.data
    for (_, _, address, length), at in zip(fragments, ends.tolist(), strict=False):
        ctypes.memmove(start + at, address, length)
    blocks = [fragment[0] for fragment in fragments]
    return _batch(blocks, [fragment[1] for fragment in fragments], ends, pyarrow().py_buffer(data))


def _batch(blocks: list[int], offsets: list[int], ends: npt.NDArray[np.int64], data: Any) -> Any:
    arrow = pyarrow()
    values = arrow.Array.from_buffers(arrow.large_binary(), len(blocks), [None, arrow.py_buffer(ends), data])
    return arrow.record_batch(
        [arrow.array(blocks, arrow.int64()), arrow.array(offsets, arrow.int64()), values], schema()
    )


def fragments(batch: Any, blocks: int) -> list[tuple[int, int, int, int]]:
    """(block, offset in it, address, nbytes) of the fragments of one batch, which must live as long as they are used.

    Args:
        blocks: how many there are.

    Raises:
        ValueError: not a batch of fragments, or some of no block.
    """
    if batch.schema != schema():
        raise ValueError(f"batches of {batch.schema.names}, not of fragments")
    batch.validate(full=True)
    numbers, offsets, values = batch.columns
    if numbers.null_count or offsets.null_count or values.null_count:
        raise ValueError("a fragment without its place or bytes")
    _, raw_ends, data = values.buffers()
    if not len(values):
        return []
    ends = np.frombuffer(raw_ends, np.int64)[values.offset : values.offset + len(values) + 1]
    lengths = np.diff(ends)
    start = data.address if data is not None else 0
    found = list(
        zip(numbers.to_pylist(), offsets.to_pylist(), (start + ends[:-1]).tolist(), lengths.tolist(), strict=True)
    )
    for block, offset, _, _ in found:
        if not 0 <= block < blocks or offset < 0:
            raise ValueError(f"a fragment of block {block}, at {offset}")
    return found


def copy_fragments(
    batch: Any,
    targets: Sequence[Sequence[int]],
    reservations: list[_native.Reservation],
    copied: npt.NDArray[np.int64],
) -> int:
    """Copies the fragments of one batch to their places; adds their sizes to `copied`, by reservation.

    Args:
        targets: of each block of the file, positions in `reservations`; none: it is not wanted.

    Returns:
        bytes of all fragments.

    Raises:
        ValueError: see `fragments`; or one is outside of its block.
    """
    writes: dict[int, list[tuple[int, int, int]]] = {}
    total = 0
    for block, offset, address, nbytes in fragments(batch, len(targets)):
        total += nbytes
        for target in targets[block]:
            writes.setdefault(target, []).append((offset, address, nbytes))
            copied[target] += nbytes
    for target, of_block in writes.items():
        reservations[target].copy_in(of_block)
    return total
