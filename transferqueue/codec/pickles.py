"""Skeletons in pickle protocol 5, for any other object; the bytes of tensors and arrays stay out of band."""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np
import torch

from transferqueue.codec.dtypes import from_name, name_of
from transferqueue.codec.packed_rows import PICKLE, Buffer, PackedRow, RowBuffers
from transferqueue.codec.trees import is_plain_tensor, tensor_bytes, tensor_on


def pack_pickle(value: Any) -> PackedRow:
    """`value` as skeleton and buffers. Raises what pickling it raises."""
    stream = io.BytesIO()
    found: list[pickle.PickleBuffer] = []
    _Pickler(stream, protocol=5, buffer_callback=found.append).dump(value)
    buffers = []
    for buffer in found:
        raw = np.frombuffer(buffer.raw(), dtype=np.uint8) if buffer.raw().nbytes else np.empty(0, np.uint8)
        buffers.append(Buffer(raw.ctypes.data, raw.nbytes, raw))
    return PackedRow(PICKLE, stream.getvalue(), buffers)


def unpack_pickle(skeleton: memoryview, buffers: RowBuffers) -> Any:
    """The value back, its tensors and arrays on `buffers`. Runs code of whoever wrote it: only with `allow_pickle`."""
    return pickle.loads(skeleton, buffers=[buffers.array(index) for index in range(len(buffers))])


class _Pickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        if is_plain_tensor(obj):
            buffer = pickle.PickleBuffer(tensor_bytes(obj))  # type: ignore[arg-type]  # as above: numpy's stubs
            return _tensor, (buffer, name_of(obj.dtype), tuple(obj.shape))
        return NotImplemented


def _tensor(buffer: Any, dtype: str, shape: tuple[int, ...]) -> Any:
    raw = torch.from_numpy(np.frombuffer(buffer, dtype=np.uint8)) if len(buffer) else torch.empty(0, dtype=torch.uint8)
    return tensor_on(raw, from_name(dtype), shape)
