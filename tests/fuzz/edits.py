"""Inputs of the fuzz targets: a byte string that is read as a list of edits of something real.

Bytes that nobody wrote are refused by the first check; a damaged message, file or block is what there is in life.
"""

from __future__ import annotations

import random
from collections.abc import Sequence


class Input:
    """Reads an input front to back; beyond its end everything is 0."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def empty(self) -> bool:
        return self._at >= len(self._data)

    def take(self, nbytes: int) -> bytes:
        taken = self._data[self._at : self._at + nbytes]
        self._at += nbytes
        return taken

    def number(self, nbytes: int = 1) -> int:
        return int.from_bytes(self.take(nbytes), "little")

    def below(self, limit: int) -> int:
        return self.number(2) % limit if limit > 0 else 0

    def odd_number(self) -> int:
        """As damage makes them: near nothing, near a power of two, near the end of 64 bits, or any."""
        kind, small = self.number() % 6, self.number()
        if kind == 0:
            return small
        if kind == 1:
            return (1 << 64) - 1 - small
        if kind == 2:
            return (1 << small % 64) - 1
        if kind == 3:
            return 1 << small % 64
        return self.number(2) if kind == 4 else self.number(8)


def edited(value: bytes, given: Input) -> bytes:
    """One change: bytes flipped, numbers overwritten, cut, grown."""
    kind, at = given.number() % 7, given.below(len(value) + 1)
    if kind == 0:
        return value[:at] + given.take(1) + value[at + 1 :]
    if kind == 1:
        return value[:at] + bytes(byte ^ (1 << given.number() % 8) for byte in value[at : at + 1]) + value[at + 1 :]
    if kind == 2:
        return value[:at]
    if kind == 3:
        return value[:at] + given.take(given.below(32)) + value[at:]
    nbytes = {4: 2, 5: 4, 6: 8}[kind]
    return value[:at] + given.odd_number().to_bytes(8, "little")[:nbytes] + value[at + nbytes :]


def edits_of(count: int, *, seed: int = 1) -> list[bytes]:
    """`count` inputs of one or a few edits each, the first of them empty."""
    source = random.Random(seed)
    return [b"", *(source.randbytes(source.choice((6, 12, 24))) for _ in range(count - 1))]


def require(holds: bool, what: object) -> None:
    """An assertion about an error that was caught."""
    if not holds:
        raise AssertionError(str(what))


class Mutator:
    """Inputs out of inputs, where no coverage guides: for a fuzzer without atheris."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def next(self, pool: Sequence[bytes]) -> bytes:
        source = self._random
        data = bytearray(source.choice(pool))
        for _ in range(source.randint(1, 4)):
            kind, at = source.randrange(6), source.randrange(len(data) + 1)
            if kind == 0 and at < len(data):
                data[at] = source.randrange(256)
            elif kind == 1 and at < len(data):
                data[at] ^= 1 << source.randrange(8)
            elif kind == 2:
                data[at:at] = source.randbytes(source.randint(1, 12))
            elif kind == 3:
                del data[at : at + source.randint(1, 8)]
            elif kind == 4:
                other = source.choice(pool)
                data[at:] = other[source.randrange(len(other) + 1) :]
            else:
                number = source.choice((0, 1, 0x7F, 0xFF, 0xFFFF, 0x7FFFFFFF, (1 << 62), (1 << 64) - 1))
                nbytes = source.choice((1, 2, 4, 8))
                data[at : at + nbytes] = number.to_bytes(8, "little")[:nbytes]
        return bytes(data[:4096])
