"""Skeletons in msgpack: plain values with tensors, arrays, tuples, numpy scalars, big ints and keys of any kind.

What such rows hold needs no pickle, and their tensors' bytes are not in the skeleton but in buffers beside it.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import torch

from transferqueue.codec.dtypes import (
    copies_as_bytes,
    from_number,
    is_storable,
    is_text,
    number_of,
    numpy_from_text,
    numpy_to_text,
)
from transferqueue.codec.packed_rows import TREE, Buffer, PackedRow, RowBuffers
from transferqueue.codec.values import is_exact
from transferqueue.errors import CorruptSegmentError, TransferQueueError

_TENSOR, _ARRAY, _SCALAR, _TUPLE, _INT, _MAPPING = range(1, 7)
_EXACT_SCALARS = frozenset((str, bytes, float, bool, int, type(None)))
_encoder = msgspec.msgpack.Encoder()


class NotATree(Exception):
    """A value that only pickle keeps."""


def pack_tree(value: Any) -> PackedRow:
    """`value` as skeleton and buffers. Raises `NotATree` for what is neither plain nor one of the kinds above."""
    writer = _Writer()
    try:
        skeleton = _encoder.encode(writer.wire(value))
    # RuntimeError: too deep (RecursionError), or a tensor whose storage was freed.
    except (RuntimeError, UnicodeEncodeError, OverflowError, msgspec.MsgspecError) as error:
        raise NotATree from error
    return PackedRow(TREE, skeleton, writer.buffers)


def tensor_bytes(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """A tensor's values in order as a uint8 array; copies only what is not contiguous in CPU memory."""
    plain = tensor.detach().cpu().resolve_conj().resolve_neg()
    if copies_as_bytes(plain.dtype):
        plain = plain.view(torch.uint8)
    plain = plain.contiguous()
    if not plain.numel():
        return np.empty(0, dtype=np.uint8)
    # as_strided, since a tensor of one element is contiguous whatever its strides are, and keeps them in reshape.
    flat: np.ndarray[Any, Any] = plain.as_strided((plain.numel(),), (1,)).view(torch.uint8).numpy()
    return flat


def tensor_on(buffer: torch.Tensor, dtype: torch.dtype, shape: Any) -> torch.Tensor:
    """The tensor whose values are `buffer` (uint8, 1-D), on that memory."""
    return buffer.view(dtype).view(shape)


def is_plain_tensor(value: Any) -> bool:
    """A strided tensor without subclass, nesting or quantization: its bytes, dtype and shape are all of it."""
    return (
        type(value) is torch.Tensor
        and value.layout is torch.strided
        and not value.is_nested
        and (is_storable(value.dtype) and value.device.type != "meta")
    )


class _Writer:
    def __init__(self) -> None:
        self.buffers: list[Buffer] = []

    def wire(self, value: Any) -> Any:
        """`value` with everything that msgpack has no type for turned into extensions."""
        kind = type(value)
        if kind in _EXACT_SCALARS:
            if kind is int and not is_exact(value):
                return msgspec.msgpack.Ext(_INT, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))
            return value
        if kind is list:
            return [self.wire(item) for item in value]
        if kind is dict:
            if all(type(key) is str for key in value):
                return {key: self.wire(item) for key, item in value.items()}
            flat = [self.wire(part) for pair in value.items() for part in pair]
            return msgspec.msgpack.Ext(_MAPPING, _encoder.encode(flat))
        if kind is tuple:
            return msgspec.msgpack.Ext(_TUPLE, _encoder.encode([self.wire(item) for item in value]))
        if is_plain_tensor(value):
            entry = [self._add(tensor_bytes(value)), number_of(value.dtype), list(value.shape)]
            return msgspec.msgpack.Ext(_TENSOR, _encoder.encode(entry))
        if kind is np.ndarray and not value.dtype.hasobject and value.dtype.itemsize:
            array = np.ascontiguousarray(value)
            entry = [self._add(array), numpy_to_text(value.dtype), list(value.shape)]
            return msgspec.msgpack.Ext(_ARRAY, _encoder.encode(entry))
        if kind is np.str_ or kind is np.bytes_:
            # As text, not as an array's element, and not by item(): both drop zeros at the end.
            plain = (str if kind is np.str_ else bytes).__getitem__(value, slice(None))
            return msgspec.msgpack.Ext(_SCALAR, _encoder.encode([None, plain]))
        if isinstance(value, np.generic) and not value.dtype.hasobject and kind is value.dtype.type:
            return msgspec.msgpack.Ext(_SCALAR, _encoder.encode([numpy_to_text(value.dtype), value.tobytes()]))
        raise NotATree

    def _add(self, array: np.ndarray[Any, Any]) -> int:
        self.buffers.append(Buffer(array.ctypes.data, array.nbytes, array))
        return len(self.buffers) - 1


def _text(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if not is_text(values):
        raise CorruptSegmentError("a stored row holds what is no character")
    return values


class TreeReader:
    """Makes values of skeletons, row after row; their tensors and arrays lie on the row's buffers.

    Used as a context manager: the decoder and its extension hook refer to each other, and a view that this cycle held
    would keep its lease until some garbage collection.
    """

    def __init__(self) -> None:
        self._buffers: RowBuffers | None = None
        self._decoder: msgspec.msgpack.Decoder[Any] | None = msgspec.msgpack.Decoder(ext_hook=self._extension)

    def __enter__(self) -> TreeReader:
        return self

    def __exit__(self, *exception: object) -> None:
        self._decoder = self._buffers = None

    def read(self, skeleton: memoryview, buffers: RowBuffers) -> Any:
        """One row."""
        self._buffers = buffers
        try:
            return self._decode(skeleton)
        except TransferQueueError:
            raise
        except (msgspec.MsgspecError, ValueError, TypeError, LookupError, RuntimeError, ArithmeticError) as error:
            raise CorruptSegmentError(f"the skeleton of a stored row is unreadable: {error}") from error

    def _decode(self, data: memoryview) -> Any:
        assert self._decoder is not None
        return self._decoder.decode(data)

    def _extension(self, code: int, data: memoryview) -> Any:
        if code == _INT:
            return int.from_bytes(data, "big", signed=True)
        content = self._decode(data)
        assert self._buffers is not None
        if code == _TENSOR:
            index, number, shape = content
            return tensor_on(self._buffers.tensor(index), from_number(number), shape)
        if code == _ARRAY:
            index, text, shape = content
            return _text(self._buffers.array(index).view(numpy_from_text(text)).reshape(shape))
        if code == _SCALAR:
            text, raw = content
            if text is None:
                return np.str_(raw) if type(raw) is str else np.bytes_(raw)
            return _text(np.frombuffer(raw, dtype=numpy_from_text(text)))[0]
        if code == _TUPLE:
            return tuple(content)
        if code == _MAPPING:
            return dict(zip(content[::2], content[1::2], strict=True))
        raise CorruptSegmentError(f"a stored row holds the unknown extension {code}")
