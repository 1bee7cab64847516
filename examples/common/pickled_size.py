"""How large a value is when it travels."""

from __future__ import annotations

import pickle
from typing import Any


def pickled_nbytes(value: Any) -> int:
    """Bytes of a value as Ray serialises it: cloudpickle, protocol 5, buffers that travel out of band included."""
    from ray import cloudpickle

    buffers: list[pickle.PickleBuffer] = []
    body: bytes = cloudpickle.dumps(value, protocol=5, buffer_callback=buffers.append)  # type: ignore[no-untyped-call]
    return len(body) + sum(buffer.raw().nbytes for buffer in buffers)
