"""Large values that several ranks get go into the object store once, not once per rank: a value for all ranks, and the
shard of a replica (tensor and pipeline parallel ranks share it)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
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
    """The arguments with each large value that several ranks get (weights, a batch, the shard of a replica) replaced by
    one reference to it."""
    if world_size < 2:
        return args, kwargs
    put = require_ray("RayWorkerGroup").put

    def shared(value: Any) -> Any:
        if isinstance(value, PerRank):
            return shared_shards(value, put)
        inner = value.value if isinstance(value, Broadcast) else value
        if isinstance(inner, list) and not isinstance(value, Broadcast):
            return value  # may be spread over the ranks
        if approximate_nbytes(inner) <= SHARE_ABOVE_NBYTES:
            return value
        return Broadcast(put(inner))

    return [shared(value) for value in args], {name: shared(value) for name, value in kwargs.items()}


def shared_shards(shards: PerRank, put: Callable[[Any], Any]) -> PerRank:
    """The values with each large one that several ranks share replaced by one reference to it. What one rank alone
    gets is sent with its call, which Ray does by the same way."""
    ranks_of = Counter(id(shard) for shard in shards)
    refs: dict[int, Any] = {}
    for shard in shards:
        if ranks_of[id(shard)] > 1 and id(shard) not in refs and approximate_nbytes(shard) > SHARE_ABOVE_NBYTES:
            refs[id(shard)] = put(shard)
    return PerRank(refs.get(id(shard), shard) for shard in shards) if refs else shards


def approximate_nbytes(value: Any, depth: int = _DEPTH) -> int:
    """Bytes of tensors, arrays and byte strings in a value, a few levels deep. A guess for a choice, not a measure."""
    if isinstance(value, torch.Tensor):
        return 0 if value.is_nested and value.layout is not torch.jagged else int(_tensor_nbytes(value))
    if isinstance(value, (np.ndarray, bytes, bytearray, str)):
        return int(value.nbytes) if isinstance(value, np.ndarray) else len(value)
    if depth == 0:
        return 0
    parts = getattr(value, "batch", None), getattr(value, "non_tensor_batch", None)
    if parts != (None, None):  # a DataProto, or a batch that says what of it are pads
        return sum(approximate_nbytes(part, depth) for part in parts)
    if isinstance(value, (dict, TensorDictBase)):
        return sum(approximate_nbytes(inner, depth - 1) for inner in value.values())
    if isinstance(value, (list, tuple)):
        return sum(approximate_nbytes(inner, depth - 1) for inner in value)
    return 0


def _tensor_nbytes(value: torch.Tensor) -> int:
    plain = value.values() if value.is_nested else value
    return plain.numel() * plain.element_size()
