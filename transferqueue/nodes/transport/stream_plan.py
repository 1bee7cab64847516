"""How the bytes of a request are cut: into parts, one a stream, and into messages.

The fields lie one after another, each with its rows one after another; a part is a range of these bytes. Where the cuts
are depends on the rows' sizes only, so that every stream of a request finds the same ones by itself.

Rows come from pieces: stretches that lie in a row in one block. Bytes of a large piece are sent from where they lie;
rows of small pieces are gathered into a buffer first, many in one message.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
LARGE_PIECE_NBYTES = 64 << 10


class FieldBytes:
    """One field of a request.

    Attributes:
        starts: int64 [rows + 1], where each row begins in the field's bytes, and their end.
        piece_rows: int64 [pieces + 1], where each piece begins in the rows, and their end.
        nbytes: of all rows.
    """

    def __init__(self, starts: Int64s, piece_rows: Int64s) -> None:
        self.starts = starts
        self.piece_rows = piece_rows
        self.nbytes = int(starts[-1])


@dataclass(frozen=True)
class Stretch:
    """Bytes of one field that go into one message.

    Attributes:
        field: its number.
        start, nbytes: which of the field's bytes.
        piece: the large piece that they are in; -1: they are the rows of small ones.
        rows: (first, behind the last) then.
    """

    field: int
    start: int
    nbytes: int
    piece: int
    rows: tuple[int, int] = (0, 0)


def part_bounds(fields: Sequence[FieldBytes], part: int, parts: int) -> tuple[int, int]:
    """(first, behind the last) byte of a part, counted through all fields."""
    total = sum(field.nbytes for field in fields)
    return _cut(fields, total * part // parts), _cut(fields, total * (part + 1) // parts)


def stretches(fields: Sequence[FieldBytes], first: int, last: int, chunk_nbytes: int) -> Iterator[Stretch]:
    """The bytes from `first` to `last` (both from `part_bounds`), in order, none longer than `chunk_nbytes` unless it
    is one row of a small piece."""
    base = 0
    for number, field in enumerate(fields):
        low, high = max(first - base, 0), min(last - base, field.nbytes)
        if low < high:
            yield from _of_field(number, field, low, high, chunk_nbytes)
        base += field.nbytes


def _cut(fields: Sequence[FieldBytes], at: int) -> int:
    """The byte at or before `at` where a part may begin: anywhere in a row that can only be in a large piece, else at
    a row."""
    base = 0
    for field in fields:
        if at < base + field.nbytes:
            row = int(np.searchsorted(field.starts, at - base, side="right")) - 1
            start, end = int(field.starts[row]), int(field.starts[row + 1])
            return at if end - start >= LARGE_PIECE_NBYTES else base + start
        base += field.nbytes
    return base


def _of_field(number: int, field: FieldBytes, low: int, high: int, chunk_nbytes: int) -> Iterator[Stretch]:
    bounds = field.starts[field.piece_rows]
    large = np.diff(bounds) >= LARGE_PIECE_NBYTES
    # Each large piece by itself, small ones next to each other together.
    changes = np.flatnonzero(large[1:] | large[:-1]) + 1
    groups = np.concatenate((np.zeros(1, np.int64), changes, np.array([len(large)], np.int64)))
    begin = max(int(np.searchsorted(bounds[groups], low, side="right")) - 1, 0)
    for piece, behind in zip(groups[begin:-1].tolist(), groups[begin + 1 :].tolist(), strict=True):
        start, end = max(int(bounds[piece]), low), min(int(bounds[behind]), high)
        if start >= high:
            return
        if start >= end:
            continue
        if large[piece]:
            for at in range(start, end, chunk_nbytes):
                yield Stretch(number, at, min(chunk_nbytes, end - at), piece)
        else:
            yield from _of_rows(number, field.starts, start, end, chunk_nbytes)


def _of_rows(number: int, starts: Int64s, start: int, end: int, chunk_nbytes: int) -> Iterator[Stretch]:
    # Rows without bytes are in no stretch, wherever they stand.
    row = int(np.searchsorted(starts, start, side="right")) - 1
    last = int(np.searchsorted(starts, end, side="left"))
    while row < last:
        at = int(starts[row])
        behind = min(max(int(np.searchsorted(starts, at + chunk_nbytes, side="right")) - 1, row + 1), last)
        yield Stretch(number, at, int(starts[behind]) - at, -1, (row, behind))
        row = behind
