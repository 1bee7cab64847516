"""Values as bytes between nodes: one version byte, then MessagePack. Never pickle.

What MessagePack would not give back as it was is an extension: metadata in its own versioned bytes, numpy arrays (int64
ones as runs or packed, see `metadata.index_ranges`), tensors, tuples, sets, big integers, numpy's numbers, dicts with
other keys than text, and the dataclasses that were declared with `carried`. Anything else is refused by the sender, by
the name of its type. Everything read is bounded and checked.
"""

from __future__ import annotations

import dataclasses
import math
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec
import numpy as np

from transferqueue.errors import CorruptSegmentError, LayoutMismatchError
from transferqueue.metadata import BatchMeta, KVBatchMeta, batch_wire, kv_wire
from transferqueue.metadata.index_ranges import MAX_ROWS, decode_int64, encode_int64

MESSAGE_VERSION = 2
MAX_MESSAGE_NBYTES = 1 << 30
"""Of one message; payload does not travel in messages."""
MAX_DEPTH = 24
"""Of extensions in each other, as lists of tuples of lists."""
# Runs of int64 are the only thing that is larger than its bytes: all of one message together hold at most so many.
_MAX_EXPANDED = 2 * MAX_ROWS

_BATCH, _KEYS, _INT64, _ARRAY, _TENSOR, _TUPLE, _SET, _FROZENSET, _INT, _SCALAR, _MAPPING, _DATACLASS = range(1, 13)
_NUMBER_KINDS = "biufc"  # of numpy: bool, integers, floats, complex
_NUMBER_TYPE = re.compile(f"[<>|=]?[{_NUMBER_KINDS}][0-9]{{1,2}}")
_PLAIN = frozenset((str, float, bool, type(None), bytes))
_INT_FIRST, _INT_LAST = -(2**63), 2**64 - 1
_VERSION = bytes([MESSAGE_VERSION])
_pack = msgspec.msgpack.Encoder().encode
_Class = TypeVar("_Class", bound=type)
_dataclasses: dict[str, Any] = {}
# name of a class -> name of each field -> whether it may be left out where it is empty.
_dataclass_fields: dict[str, dict[str, bool]] = {}


def carried(cls: _Class) -> _Class:
    """Declares a dataclass whose objects may be in messages, by its name; the receiver has to have imported it, too."""
    known: Any = cls
    if not dataclasses.is_dataclass(known) or _dataclasses.setdefault(cls.__name__, cls) is not cls:
        raise TypeError(f"{cls.__name__} is no dataclass, or another one of that name is carried")
    _dataclass_fields[cls.__name__] = {
        field.name: field.default_factory is not dataclasses.MISSING and not len(field.default_factory())
        for field in dataclasses.fields(known)
    }
    return cls


def encode(value: Any) -> bytes:
    """The message.

    Raises:
        TypeError: a value of a type that no message carries; named.
        ValueError: larger than `MAX_MESSAGE_NBYTES`, nested deeper than `MAX_DEPTH`, or text that is not Unicode.
    """
    message = _VERSION + _pack(_parts(value, 0))
    if len(message) > MAX_MESSAGE_NBYTES:
        raise ValueError(
            f"a message of {len(message)} bytes is too large to go to another node: at most {MAX_MESSAGE_NBYTES}; "
            "large values belong in fields"
        )
    return message


def decode(message: Any) -> Any:
    """The value of a message: bytes, or anything with their buffer.

    Raises:
        CorruptSegmentError: no message. LayoutMismatchError: of another version.
    """
    body = memoryview(message)
    if not len(body):
        raise CorruptSegmentError("a message from another node is empty")
    if body[0] != MESSAGE_VERSION:
        raise LayoutMismatchError(
            f"a message has version {body[0]}, this build reads {MESSAGE_VERSION}: use one version of "
            "transferqueue-shm on all nodes",
            expected=MESSAGE_VERSION,
            found=body[0],
        )
    reader = _Reader()
    try:
        return reader.read(body[1:])
    except (CorruptSegmentError, LayoutMismatchError):
        raise
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError, ValueError, OverflowError) as error:
        raise CorruptSegmentError(f"a message from another node does not decode: {error}") from error


def _parts(value: Any, depth: int) -> Any:
    """`value` with what MessagePack does not have as extensions."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is int:
        if _INT_FIRST <= value <= _INT_LAST:
            return value
        return _ext(_INT, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))
    if depth > MAX_DEPTH:
        raise ValueError(f"values nested deeper than {MAX_DEPTH} do not go to another node")
    depth += 1
    if kind is list:
        return value if _PLAIN.issuperset(map(type, value)) else [_parts(item, depth) for item in value]
    if kind is dict:
        if all(type(key) is str for key in value):
            if _PLAIN.issuperset(map(type, value.values())):
                return value
            return {key: _parts(item, depth) for key, item in value.items()}
        return _ext(_MAPPING, _pack([_parts(part, depth) for pair in value.items() for part in pair]))
    writer = _WRITERS.get(kind)
    if writer is not None:
        return writer(value, depth)
    if isinstance(value, np.generic) and kind is value.dtype.type and value.dtype.kind in _NUMBER_KINDS:
        return _ext(_SCALAR, _pack([value.dtype.str, value.tobytes()]))
    declared = _dataclasses.get(kind.__name__)
    if declared is not None and declared is kind:
        named = {name: _parts(part, depth) for name, part in _said(value)}
        return _ext(_DATACLASS, _pack([kind.__name__, named]))
    torch = sys.modules.get("torch")  # a tensor is there only if it is
    if torch is not None and kind is torch.Tensor:
        return _ext(_TENSOR, _tensor(value))
    raise TypeError(
        f"a value of type {kind.__module__}.{kind.__qualname__} cannot go to another node: messages carry metadata, "
        "text, numbers, bytes, lists, tuples, sets, dicts, numpy arrays and tensors, and nothing that needs pickle"
    )


def _said(value: Any) -> Iterator[tuple[str, Any]]:
    """The fields of a carried dataclass, without those that are empty if nothing is said of them: to read an empty one
    takes as long as to read another."""
    for name, omitted in _dataclass_fields[type(value).__name__].items():
        part = getattr(value, name)
        if not omitted or len(part):
            yield name, part


def _ext(code: int, data: bytes) -> msgspec.msgpack.Ext:
    return msgspec.msgpack.Ext(code, data)


def _batch(meta: BatchMeta, depth: int) -> Any:
    data, beside = batch_wire.encode(meta)
    return _ext(_BATCH, _pack([data, _parts(beside, depth)] if beside else [data]))


def _keys(meta: KVBatchMeta, depth: int) -> Any:
    data, *beside = meta.__reduce__()[1]
    return _ext(_KEYS, _pack([data, *(_parts(part, depth) for part in beside)]))


def _array(array: np.ndarray[Any, Any], depth: int) -> Any:
    if array.dtype.kind not in _NUMBER_KINDS or not array.dtype.isnative:
        raise TypeError(f"a numpy array of dtype {array.dtype} cannot go to another node")
    if array.dtype == np.int64 and array.ndim == 1 and len(array) <= MAX_ROWS:
        return _ext(_INT64, _pack([len(array), encode_int64(np.ascontiguousarray(array))]))
    return _ext(_ARRAY, _pack([array.dtype.str, list(array.shape), array.tobytes()]))


def _tensor(tensor: Any) -> bytes:
    import torch

    from transferqueue.codec.dtypes import name_of

    if tensor.layout is not torch.strided or tensor.is_nested:
        raise TypeError(f"a tensor of layout {tensor.layout} cannot go to another node in a message: put it in a field")
    plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    raw = plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b""
    return _pack([name_of(tensor.dtype), list(tensor.shape), raw])


_WRITERS: dict[type, Callable[[Any, int], Any]] = {
    BatchMeta: _batch,
    KVBatchMeta: _keys,
    np.ndarray: _array,
    tuple: lambda value, depth: _ext(_TUPLE, _pack([_parts(item, depth) for item in value])),
    set: lambda value, depth: _ext(_SET, _pack([_parts(item, depth) for item in value])),
    frozenset: lambda value, depth: _ext(_FROZENSET, _pack([_parts(item, depth) for item in value])),
}


class _Reader:
    """Reads one message; knows how deep it is and how much was expanded."""

    def __init__(self) -> None:
        self._depth = 0
        self._room = _MAX_EXPANDED

    def read(self, data: memoryview) -> Any:
        return msgspec.msgpack.decode(data, ext_hook=self._hook)

    def _hook(self, code: int, data: memoryview) -> Any:
        reader = _READERS.get(code)
        if reader is None:
            raise ValueError(f"a value of unknown kind {code}")
        if self._depth > MAX_DEPTH:
            raise ValueError(f"nested deeper than {MAX_DEPTH}")
        self._depth += 1
        try:
            return reader(self, data)
        finally:
            self._depth -= 1

    def _list(self, data: memoryview, at_least: int = 0, at_most: int = 1 << 32) -> list[Any]:
        parts = self.read(data)
        if type(parts) is not list or not at_least <= len(parts) <= at_most:
            raise ValueError(f"a list of {at_least} to {at_most} parts was expected")
        return parts

    def batch(self, data: memoryview) -> BatchMeta:
        parts = self._list(data, 1, 2)
        beside = parts[1] if len(parts) == 2 else None
        if type(parts[0]) is not bytes or not (beside is None or type(beside) is dict):
            raise ValueError("metadata is not bytes")
        return batch_wire.decode(BatchMeta, parts[0], beside)

    def keys(self, data: memoryview) -> KVBatchMeta:
        parts = self._list(data, 1, 2)
        beside = parts[1] if len(parts) == 2 else None
        if type(parts[0]) is not bytes or not (beside is None or type(beside) is dict):
            raise ValueError("metadata is not bytes")
        return kv_wire.decode(KVBatchMeta, *parts)

    def int64(self, data: memoryview) -> Any:
        count, packed = self._list(data, 2, 2)
        if type(count) is not int or type(packed) is not bytes or not 0 <= count <= self._room:
            raise ValueError("an int64 array without its length, or longer than messages hold")
        self._room -= count
        return decode_int64(packed, count)

    def array(self, data: memoryview) -> Any:
        text, shape, raw = self._list(data, 3, 3)
        if type(raw) is not bytes:
            raise ValueError("an array without bytes")
        return np.frombuffer(raw, _number_type(text)).reshape(_shape(shape)).copy()

    def tensor(self, data: memoryview) -> Any:
        import torch

        from transferqueue.codec.dtypes import from_name

        name, shape, raw = self._list(data, 3, 3)
        if type(name) is not str or type(raw) is not bytes:
            raise ValueError("a tensor without its dtype")
        dtype, sizes = from_name(name), _shape(shape)
        if math.prod(sizes) * dtype.itemsize != len(raw):
            raise ValueError(f"a tensor of {len(raw)} bytes does not have the shape {sizes}")
        made = torch.empty(sizes, dtype=dtype)
        if raw:
            made.view(-1).view(torch.uint8).copy_(torch.frombuffer(bytearray(raw), dtype=torch.uint8))
        return made

    def integer(self, data: memoryview) -> int:
        return int.from_bytes(data, "big", signed=True)

    def scalar(self, data: memoryview) -> Any:
        text, raw = self._list(data, 2, 2)
        dtype = _number_type(text)
        if type(raw) is not bytes or len(raw) != dtype.itemsize:
            raise ValueError(f"a number of {text!r}")
        return np.frombuffer(raw, dtype)[0]

    def mapping(self, data: memoryview) -> dict[Any, Any]:
        parts = self._list(data)
        if len(parts) % 2:
            raise ValueError("a dict with a key and no value")
        return dict(zip(parts[::2], parts[1::2], strict=True))

    def declared(self, data: memoryview) -> Any:
        name, values = self._list(data, 2, 2)
        cls = _dataclasses.get(name) if type(name) is str else None
        if cls is None or type(values) is not dict:
            raise ValueError(f"an object of an unknown class: {str(name)[:80]!r}")
        if not _dataclass_fields[name].keys() >= values.keys():
            raise ValueError(f"an object of class {name} with unknown attributes")
        return cls(**values)


def _number_type(text: Any) -> np.dtype[Any]:
    # numpy reads a whole language here, with records and Python literals.
    if type(text) is not str or _NUMBER_TYPE.fullmatch(text) is None:
        raise ValueError(f"no type of numbers: {str(text)[:20]!r}")
    return np.dtype(text)


def _shape(shape: Any) -> tuple[int, ...]:
    if type(shape) is not list or len(shape) > 32 or not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError("no shape of an array")
    return tuple(shape)


_READERS: dict[int, Callable[[_Reader, memoryview], Any]] = {
    _BATCH: _Reader.batch,
    _KEYS: _Reader.keys,
    _INT64: _Reader.int64,
    _ARRAY: _Reader.array,
    _TENSOR: _Reader.tensor,
    _TUPLE: lambda reader, data: tuple(reader._list(data)),
    _SET: lambda reader, data: set(reader._list(data)),
    _FROZENSET: lambda reader, data: frozenset(reader._list(data)),
    _INT: _Reader.integer,
    _SCALAR: _Reader.scalar,
    _MAPPING: _Reader.mapping,
    _DATACLASS: _Reader.declared,
}
