"""A row's tags as bytes, in the form that the native core merges without Python.

``u32 n | n x { u32 name length | name | u32 value length | value }``, little-endian, sorted by the name's bytes. A
value is MessagePack; what MessagePack would not give back as it was is an extension: of tuples, big integers, numpy's
numbers and dicts with other keys than text their parts, of anything else a pickle.
"""

from __future__ import annotations

import pickle
import re
import struct
import sys
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from transferqueue.errors import CorruptSegmentError, PickleNotAllowedError

PICKLE_EXTENSION = 1
_TUPLE, _INT, _SCALAR, _MAPPING = 2, 3, 4, 5
_NUMBER_KINDS = "biufc"  # of numpy: bool, integers, floats, complex
_NUMBER_TYPE = re.compile(f"[<>|=]?[{_NUMBER_KINDS}][0-9]{{1,2}}")
_COUNT = struct.Struct("<I")
_EXACT_SCALARS = (str, int, float, bool, type(None), bytes)
# Encoded without a further look. A str may hold a lone surrogate, which `_encode` says by the name of the tag.
_PLAIN = frozenset((float, bool, type(None), bytes))
_INT_FIRST, _INT_LAST = -(2**63), 2**64 - 1
_SHORT_LENGTHS = [_COUNT.pack(length) for length in range(256)]
_encode_value = msgspec.msgpack.Encoder().encode


def _survives(value: Any) -> bool:
    """Whether MessagePack returns an equal value of the same type."""
    kind = type(value)
    if kind is int:
        return bool(_INT_FIRST <= value <= _INT_LAST)
    if kind in _EXACT_SCALARS:
        return True
    if kind is list:
        return all(_survives(item) for item in value)
    if kind is dict:
        return all(type(key) is str and _survives(item) for key, item in value.items())
    return False


class _NotPlain(Exception):
    pass


def _parts(value: Any) -> Any:
    """`value` with what MessagePack does not have as extensions. Raises `_NotPlain` for what only pickle keeps."""
    kind = type(value)
    if kind is int and not _INT_FIRST <= value <= _INT_LAST:
        return msgspec.msgpack.Ext(_INT, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))
    if kind in _EXACT_SCALARS:
        return value
    if kind is list:
        return [_parts(item) for item in value]
    if kind is dict:
        if all(type(key) is str for key in value):
            return {key: _parts(item) for key, item in value.items()}
        flat = [_parts(part) for pair in value.items() for part in pair]
        return msgspec.msgpack.Ext(_MAPPING, _encode_value(flat))
    if kind is tuple:
        return msgspec.msgpack.Ext(_TUPLE, _encode_value([_parts(item) for item in value]))
    numpy = sys.modules.get("numpy")  # a scalar of it is there only if it is
    is_scalar = numpy is not None and isinstance(value, numpy.generic) and kind is value.dtype.type
    if is_scalar and value.dtype.kind in _NUMBER_KINDS:
        return msgspec.msgpack.Ext(_SCALAR, _encode_value([value.dtype.str, value.tobytes()]))
    raise _NotPlain


def _scalar(parts: Any) -> Any:
    import numpy

    text, raw = parts
    # numpy reads a whole language here, with records and Python literals.
    known = isinstance(text, str) and _NUMBER_TYPE.fullmatch(text) is not None
    dtype = numpy.dtype(text if known else "O")
    if not known or len(raw) != dtype.itemsize:
        raise ValueError(f"a tag holds a number of no type of numpy's: {text!r}")
    return numpy.frombuffer(raw, dtype)[0]


def _encode(name: str, value: Any, check_pickles: bool) -> bytes:
    try:
        if _survives(value):
            return _encode_value(value)
        try:
            return _encode_value(_parts(value))
        except _NotPlain:
            pickled = pickle.dumps(value, protocol=5)
            if check_pickles:
                pickle.loads(pickled)  # one that does not load would fail everybody who lists its partition
            return _encode_value(msgspec.msgpack.Ext(PICKLE_EXTENSION, pickled))
    except Exception as error:  # whatever the value's own code raises
        raise ValueError(f"tag {name!r}, a {type(value).__name__}, cannot be stored: {error!r}") from error


def encode_tags(tags: Mapping[str, Any] | None, *, check_pickles: bool = False) -> bytes:
    """The tag map of one row; ``b""`` for no tags.

    Args:
        check_pickles: values that only pickle keeps are loaded once, to see whether they can be.

    Raises:
        TypeError: a name is not a str, or tags is not a mapping.
        ValueError: a name or value cannot be stored (no pickle of it, or, with `check_pickles`, one that does not
            load; a lone surrogate); the message names the tag.
    """
    if tags is None:
        return b""
    if not isinstance(tags, Mapping):
        raise TypeError(f"the tags of a row must be a dict, not {type(tags).__name__}")
    if not len(tags):  # not by its truth: a TensorDict has none
        return b""
    count, heads = _heads(tuple(tags))
    parts = [count]
    for name, head in heads:
        value = tags[name]
        kind = type(value)
        if kind in _PLAIN or (kind is int and _INT_FIRST <= value <= _INT_LAST):
            encoded = _encode_value(value)
        else:
            encoded = _encode(name, value, check_pickles)
        length = len(encoded)
        parts.append(head)
        parts.append(_SHORT_LENGTHS[length] if length < 256 else _COUNT.pack(length))
        parts.append(encoded)
    return b"".join(parts)


@lru_cache(maxsize=1024)
def _heads(names: tuple[Any, ...]) -> tuple[bytes, tuple[tuple[str, bytes], ...]]:
    """What stands before the values of these names: (count, (name, its length and bytes) in the order of the bytes).

    The rows of a batch mostly have the same tags, so this is worked out once for all of them.
    """
    heads = []
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"names of tags must be str, not {name!r}")
        try:
            raw = name.encode()
        except UnicodeEncodeError:
            raise ValueError(f"the name of tag {name!r} holds a lone surrogate, which cannot be stored") from None
        heads.append((name, _COUNT.pack(len(raw)) + raw))
    heads.sort(key=lambda head: head[1][_COUNT.size :])
    return _COUNT.pack(len(names)), tuple(heads)


class TagDecoder:
    """Decodes tag maps; `allow_pickle` says whether values may be unpickled."""

    def __init__(self, *, allow_pickle: bool = True) -> None:
        self._allow_pickle = allow_pickle
        self._decode_value = msgspec.msgpack.Decoder(ext_hook=self._extension).decode

    def _extension(self, code: int, data: memoryview) -> Any:
        if code == _INT:
            return int.from_bytes(data, "big", signed=True)
        if code == _TUPLE:
            return tuple(self._decode_value(data))
        if code == _MAPPING:
            flat = self._decode_value(data)
            return dict(zip(flat[::2], flat[1::2], strict=True))
        if code == _SCALAR:
            return _scalar(self._decode_value(data))
        if code != PICKLE_EXTENSION:
            raise CorruptSegmentError(f"a tag holds an extension of unknown kind {code}")
        if not self._allow_pickle:
            raise PickleNotAllowedError(
                "a tag holds a value that only pickle keeps, and unpickling runs code of whoever wrote it. If you "
                "trust every writer of this session, set allow_pickle=True",
                field=None,
            )
        try:
            return pickle.loads(data)
        except Exception as error:  # code of the value's class: anything may come out of it
            raise CorruptSegmentError(f"a tag holds a value that cannot be unpickled: {error!r}") from error

    def decode(self, blob: bytes) -> dict[str, Any]:
        """The tags of one row; a new dict at each call.

        Raises:
            CorruptSegmentError: not a tag map. PickleNotAllowedError: a pickled value while `allow_pickle` is off.
        """
        if not blob:
            return {}
        try:
            (count,) = _COUNT.unpack_from(blob, 0)
            at = _COUNT.size
            tags = {}
            for _ in range(count):
                (length,) = _COUNT.unpack_from(blob, at)
                at += _COUNT.size
                name = blob[at : at + length].decode()
                at += length
                (length,) = _COUNT.unpack_from(blob, at)
                at += _COUNT.size
                if at + length > len(blob):
                    raise CorruptSegmentError("a tag map ends in the middle of a value")
                tags[name] = self._decode_value(blob[at : at + length])
                at += length
        except PickleNotAllowedError:
            raise
        except (struct.error, msgspec.DecodeError, TypeError, ValueError, RecursionError) as error:
            raise CorruptSegmentError(f"malformed tag map of {len(blob)} bytes: {error}") from error
        if at != len(blob):
            raise CorruptSegmentError(f"malformed tag map: {len(blob) - at} bytes too many")
        return tags

    def decode_all(self, blobs: Iterable[bytes]) -> list[dict[str, Any]]:
        """One dict a row; rows share nothing."""
        return [self.decode(blob) if blob else {} for blob in blobs]
