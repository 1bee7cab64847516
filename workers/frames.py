"""Calls and answers that are metadata and plain values, as one byte string each.

Ray writes a `bytes` argument as it is; every other object goes through cloudpickle and a second encoding on both
sides, which for a call with a piece of metadata costs more than the call. So such a call travels as one frame, and a
frame that is the same for all ranks is made once. Whatever else is among the values (tensors, references, a user's
objects, metadata whose user values are such) is left to Ray's own ways.

A call is a version byte and a msgpack array ``[method, args, kwargs]`` with metadata as extension types, an answer is
one byte that says what follows (metadata begins with a version of its own). What is read is bounded and checked as
`transferqueue.metadata` does it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from transferqueue.errors import CorruptSegmentError
from transferqueue.metadata import BatchMeta, KVBatchMeta, batch_wire, kv_wire
from transferqueue.metadata.wire import unpack_versioned
from transferqueue.workers.arguments import Broadcast, PerRank

FRAME_VERSION = 1
_VERSION = bytes([FRAME_VERSION])
_BATCH, _KEYS, _BYTES = 1, 2, 3
_CODES: dict[type, int] = {BatchMeta: _BATCH, KVBatchMeta: _KEYS}
_PLAIN: frozenset[type] = frozenset({type(None), bool, int, float, str})


class _Call(msgspec.Struct, array_like=True):
    method: str
    args: list[Any]
    kwargs: dict[str, Any]


def worth_a_frame(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a frame is worth trying: there is metadata among the arguments, by itself or for each rank, and beside it
    nothing that no frame holds."""
    found = False
    for value in (*args, *kwargs.values()):
        kind = type(_sample(value))
        if kind in _CODES:
            found = True
        elif kind not in _PLAIN:
            return False
    return found


class CallWriter:
    """Writes the frames of one call of a method on several ranks; a value that several of them get is packed once."""

    def __init__(self, method: str) -> None:
        self._method = method
        self._packed: dict[int, msgspec.msgpack.Ext] = {}

    def frame(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes | None:
        """The call with these arguments, which live as long as the writer; None for values that a frame cannot hold."""
        packed = self._packed
        try:
            return _VERSION + msgspec.msgpack.encode(
                [self._method, [_pack(v, packed) for v in args], {name: _pack(v, packed) for name, v in kwargs.items()}]
            )
        except (_NoFrameError, UnicodeEncodeError, OverflowError):  # the latter: surrogates, ints beyond 64 bits
            return None


def read_call(frame: bytes) -> tuple[str, list[Any], dict[str, Any]]:
    """(method, args, kwargs). Raises `CorruptSegmentError` for bytes that are no call, `LayoutMismatchError` for those
    of another version."""
    call = unpack_versioned(
        frame,
        _Call,
        FRAME_VERSION,
        what="the frame of a call",
        which="the frame of a call has version",
        where="on the controller and on all ranks",
        ext_hook=_unpacked,
    )
    return call.method, call.args, call.kwargs


def answer(output: Any) -> Any:
    """What a method returned as the rank sends it: metadata and byte strings as frames, all else as it is."""
    if type(output) is bytes:  # else it could not be told from a frame
        return bytes([_BYTES]) + output
    code = _CODES.get(type(output))
    if code is None:
        return output
    data = _wire(output)
    return output if data is None else bytes([code]) + data


def read_answer(received: Any) -> Any:
    """What the method returned. Raises `CorruptSegmentError` for bytes that are no answer."""
    if type(received) is not bytes:
        return received
    body = memoryview(received)[1:]
    if received[:1] == bytes([_BYTES]):
        return bytes(body)
    return _unpacked(received[0] if received else 0, body)


class _NoFrameError(Exception):
    pass


def _sample(value: Any) -> Any:
    if isinstance(value, Broadcast):
        return value.value
    return value[0] if isinstance(value, PerRank) and value else value


def _pack(value: Any, packed: dict[int, msgspec.msgpack.Ext]) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if id(value) in packed:
        return packed[id(value)]
    code = _CODES.get(kind)
    data = None if code is None else _wire(value)
    if code is None or data is None:
        raise _NoFrameError
    made = packed[id(value)] = msgspec.msgpack.Ext(code, data)
    return made


def _wire(meta: BatchMeta | KVBatchMeta) -> bytes | None:
    """The pickled form, when that is nothing but bytes."""
    if type(meta) is BatchMeta:  # a layer less on the path of every call
        data, beside = batch_wire.encode(meta)
        return None if beside else data
    parts: tuple[Any, ...] = meta.__reduce__()[1]
    return parts[0] if len(parts) == 1 else None


_READERS: dict[int, Callable[[Any], Any]] = {
    _BATCH: lambda data: batch_wire.decode(BatchMeta, data),
    _KEYS: lambda data: kv_wire.decode(KVBatchMeta, data),
}


def _unpacked(code: int, data: memoryview) -> Any:
    reader = _READERS.get(code)
    if reader is None:
        raise CorruptSegmentError(f"a frame holds a value of unknown kind {code}")
    return reader(data)
