"""Large values for all ranks go into the object store once, not once per rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from tensordict import TensorDictBase

from transferqueue.workers.arguments import Broadcast, PerRank
from transferqueue.workers.ray_runtime import require_ray

SHARE_ABOVE_NBYTES = 100 * 1024
"""Ray copies smaller arguments into the call itself."""

_DEPTH = 3


def shared_once(
    args: Sequence[Any], kwargs: Mapping[str, Any], world_size: int
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """The arguments with each large broadcast value (weights, a batch) replaced by one reference to it."""
    if world_size < 2:
        return args, kwargs

    def shared(value: Any) -> Any:
        inner = value.value if isinstance(value, Broadcast) else value
        if isinstance(inner, (PerRank, list)) and not isinstance(value, Broadcast):
            return value  # may be spread over the ranks
        if approximate_nbytes(inner) <= SHARE_ABOVE_NBYTES:
            return value
        return Broadcast(require_ray("RayWorkerGroup").put(inner))

    return [shared(value) for value in args], {name: shared(value) for name, value in kwargs.items()}


def approximate_nbytes(value: Any, depth: int = _DEPTH) -> int:
    """Bytes of tensors, arrays and byte strings in a value, a few levels deep. A guess for a choice, not a measure."""
    if isinstance(value, torch.Tensor):
        return 0 if value.is_nested and value.layout is not torch.jagged else int(_tensor_nbytes(value))
    if isinstance(value, (np.ndarray, bytes, bytearray, str)):
        return int(value.nbytes) if isinstance(value, np.ndarray) else len(value)
    if depth == 0:
        return 0
    if isinstance(value, (dict, TensorDictBase)):
        return sum(approximate_nbytes(inner, depth - 1) for inner in value.values())
    if isinstance(value, (list, tuple)):
        return sum(approximate_nbytes(inner, depth - 1) for inner in value)
    return 0


def _tensor_nbytes(value: torch.Tensor) -> int:
    plain = value.values() if value.is_nested else value
    return plain.numel() * plain.element_size()
