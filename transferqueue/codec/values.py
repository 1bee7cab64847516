"""Python values as msgpack, one message per row, exactly: what comes back is equal and of the same types.

Concatenated rows behind an array header are one msgpack array, so a column of any selection of rows is decoded by
one call. `docs/decisions/python-columns.md` has the comparison with Arrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from transferqueue.codec import schema as forms
from transferqueue.codec.encoded_field import EncodedField
from transferqueue.codec.field_tree import Leaf
from transferqueue.errors import CorruptSegmentError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ALWAYS_EXACT = frozenset((str, bytes, float, bool, type(None)))
_ONLY_STR = frozenset((str,))
_INT_MIN, _INT_MAX = -(1 << 63), (1 << 64) - 1
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder()


def is_exact(value: Any) -> bool:
    """Whether msgpack gives back an equal value of equal types throughout (tuples, subclasses, big ints do not)."""
    kind = type(value)
    if kind in _ALWAYS_EXACT:
        return True
    if kind is int:
        return bool(_INT_MIN <= value <= _INT_MAX)
    if kind is dict:
        if not _ONLY_STR.issuperset(map(type, value)):
            return False
        value = value.values()
    elif kind is not list:
        return False
    for item in value:  # leaves are looked at here: a call for each would double the time
        kind = type(item)
        if kind is int:
            if not _INT_MIN <= item <= _INT_MAX:
                return False
        elif kind not in _ALWAYS_EXACT and not is_exact(item):
            return False
    return True


def encode_values(leaf: Leaf, rows: Sequence[Any]) -> EncodedField | None:
    """The rows as a field of form VALUES, or None where msgpack would change one of them."""
    kinds = set(map(type, rows))
    try:
        if not kinds <= _ALWAYS_EXACT and not all(map(is_exact, rows)):
            return None
        data, offsets = _encode_text(rows) if kinds == {str} else _encode_each(rows)
    except (RecursionError, UnicodeEncodeError, OverflowError, msgspec.MsgspecError):
        return None  # a list that holds itself, a lone surrogate
    schema = forms.schema_bytes(forms.VALUES, path=leaf.path, inner_batch=leaf.inner_batch)
    source = np.frombuffer(data, dtype=np.uint8)
    skipped = len(data) - int(offsets[-1])
    writes = ((0, source.ctypes.data + skipped, int(offsets[-1])),)
    return EncodedField(leaf.name, schema, data_nbytes=int(offsets[-1]), offsets=offsets, writes=writes, keep=source)


def _encode_each(rows: Sequence[Any]) -> tuple[bytes, NDArray[np.int64]]:
    messages = list(map(_encoder.encode, rows))
    return b"".join(messages), _offsets(np.fromiter(map(len, messages), dtype=np.int64, count=len(messages)))


def _encode_text(rows: Sequence[Any]) -> tuple[bytes, NDArray[np.int64]]:
    """A third of the time of `_encode_each` where all text is ASCII, as uids are.

    All rows are encoded by one call. A message of n bytes of text is 1, 2, 3 or 5 bytes longer; that gives the offsets
    if every character is one byte, and the total is reached only then (UTF-8 is never shorter than its characters).
    """
    data = _encoder.encode(rows if type(rows) is list else list(rows))
    lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    sizes = lengths + 1 + (lengths > 31) + (lengths > 0xFF) + 2 * (lengths > 0xFFFF)
    offsets = _offsets(sizes)
    if int(offsets[-1]) + len(_array_header(len(rows), shortest=True)) == len(data):
        return data, offsets
    return _encode_each(rows)


def _offsets(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    offsets = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets


def _array_header(count: int, *, shortest: bool = False) -> bytes:
    if shortest and count < 16:
        return bytes((0x90 | count,))
    if shortest and count < 1 << 16:
        return b"\xdc" + count.to_bytes(2, "big")
    return b"\xdd" + count.to_bytes(4, "big")


def decode_values(name: str, data: Any, n_rows: int) -> list[Any]:
    """The rows in `data`, concatenated messages (an object with the buffer protocol)."""
    try:
        rows = _decoder.decode(b"".join((_array_header(n_rows), data)))
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CorruptSegmentError(f"the rows of field {name!r} are unreadable: {error}") from error
    if type(rows) is not list or len(rows) != n_rows:
        raise CorruptSegmentError(f"field {name!r} holds other rows than its index says")
    return rows
