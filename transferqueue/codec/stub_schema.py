"""The schema of a stub: rows whose payload lies on another node.

At a partition's home, a put of another node is recorded as a *stub*: one int64 a row, the name under which that node
keeps the row's payload. A stub's schema says so, and carries the schema of the payload itself, so that metadata made
from the index says what reading will give. Rows of one type are stubs of one schema, whichever node has them (the
name says which), so that stubs of several producers can lie in one block.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from transferqueue.errors import CorruptSegmentError

# No schema of a payload begins so: 0xc1 is what msgpack never uses.
PREFIX = b"\xc1tq-stub\x01"
_MAX_COPIES = 16
_decoder = msgspec.msgpack.Decoder(tuple[tuple[int, ...], bytes])


def is_stub(raw: bytes) -> bool:
    """Whether it is the schema of a stub."""
    return raw.startswith(PREFIX)


def stub_schema(payload: bytes, copies: tuple[int, ...] = ()) -> bytes:
    """The schema of stubs of rows whose payload has the schema `payload`.

    Args:
        copies: ordinals of nodes that keep the payload besides the one that the names say.
    """
    if is_stub(payload):
        raise ValueError("a stub of a stub")
    return PREFIX + msgspec.msgpack.encode((copies, payload))


@lru_cache(maxsize=4096)
def read_stub(raw: bytes) -> tuple[tuple[int, ...], bytes]:
    """(ordinals of nodes that keep a copy, schema of the payload) of a stub's schema.

    Raises:
        CorruptSegmentError: it is none.
    """
    try:
        copies, payload = _decoder.decode(raw[len(PREFIX) :])
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise CorruptSegmentError(f"the schema of a stub is unreadable: {error}") from error
    if len(copies) > _MAX_COPIES or min(copies, default=0) < 0 or is_stub(payload):
        raise CorruptSegmentError("the schema of a stub contradicts itself")
    return copies, payload


def payload_schema(raw: bytes) -> bytes:
    """The schema of the payload: of a stub, what it stands for; of anything else, itself."""
    return read_stub(raw)[1] if raw.startswith(PREFIX) else raw
