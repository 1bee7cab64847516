"""Deep copies of user values, so that pieces of a batch share nothing mutable with their parent.

`copy.deepcopy` costs about 2 us per dict of numbers and refuses some values that do appear in metrics (a loss that
still hangs on its graph, a handle). The common cases are copied directly here, the rest is left to `deepcopy`.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

IMMUTABLE_TYPES: frozenset[type] = frozenset(
    {type(None), bool, int, float, complex, str, bytes, np.float64, np.float32, np.int64, np.int32, np.bool_}
)


def copy_value(value: Any) -> Any:
    """A deep copy of `value`; an object that cannot be copied (a lock, a tensor inside autograd) is shared."""
    kind = type(value)
    if kind in IMMUTABLE_TYPES:
        return value
    if kind is dict:
        return {key: copy_value(item) for key, item in value.items()}
    if kind is list:
        return [copy_value(item) for item in value]
    if kind is tuple:
        return tuple(copy_value(item) for item in value)
    try:
        return copy.deepcopy(value)
    except (TypeError, RuntimeError, NotImplementedError):
        # TypeError: no pickle support (locks, sockets, generators); RuntimeError: a non-leaf tensor.
        return value


def copy_info(info: Mapping[str, Any] | None) -> dict[str, Any]:
    """A deep copy of a batch-wide dict; `None` gives an empty one."""
    return {} if not info else {key: copy_value(value) for key, value in info.items()}


def copy_row_dicts(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A deep copy of a list with one dict per row."""
    all_immutable = IMMUTABLE_TYPES.issuperset
    return [
        dict(row) if all_immutable(map(type, row.values())) else {key: copy_value(value) for key, value in row.items()}
        for row in rows
    ]
