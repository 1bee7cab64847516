"""Whether two columns hold the same values: what union asks before it takes one for the other."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from tensordict import NonTensorStack, TensorDictBase
from tensordict.tensorclass import is_non_tensor

from transferqueue.metadata.extra_info import values_equal


def columns_equal(a: Any, b: Any) -> bool:
    """Equal type, dtype, shape and values, at any depth; NaN equals NaN. Also for values that contain themselves."""
    return _equal(a, b, set())


def _equal(a: Any, b: Any, open_pairs: set[tuple[int, int]]) -> bool:
    if type(a) is not type(b):
        return False
    pair = (id(a), id(b))
    if a is b or pair in open_pairs:  # met again inside itself: equal as far as the rest is
        return True
    open_pairs.add(pair)
    try:
        if isinstance(a, np.ndarray):
            return _arrays_equal(a, b, open_pairs)
        if isinstance(a, dict):
            return a.keys() == b.keys() and all(_equal(value, b[key], open_pairs) for key, value in a.items())
        if isinstance(a, (list, tuple)):
            return len(a) == len(b) and all(_equal(x, y, open_pairs) for x, y in zip(a, b, strict=True))
        if isinstance(a, torch.Tensor):
            return _tensors_equal(a, b)
        if isinstance(a, NonTensorStack):
            return _equal(a.tolist(), b.tolist(), open_pairs)
        if is_non_tensor(a):
            return _equal(a.data, b.data, open_pairs)
        if isinstance(a, TensorDictBase):
            return set(a.keys()) == set(b.keys()) and all(
                _equal(a.get(key), b.get(key), open_pairs) for key in a.keys()
            )
        if isinstance(a, float):
            return a == b or (math.isnan(a) and math.isnan(b))
        return values_equal(a, b)
    finally:
        open_pairs.discard(pair)


def _arrays_equal(a: Any, b: Any, open_pairs: set[tuple[int, int]]) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype != object:
        return bool(np.array_equal(a, b, equal_nan=a.dtype.kind in "fc"))
    return all(_equal(x, y, open_pairs) for x, y in zip(a.flat, b.flat, strict=True))


def _tensors_equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.is_nested != b.is_nested:
        return False
    if a.is_nested:
        return a.dtype == b.dtype and len(a) == len(b) and all(map(values_equal, a.unbind(), b.unbind()))
    return values_equal(a, b)
