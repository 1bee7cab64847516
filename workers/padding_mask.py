"""Which rows of a batch are there only so that all ranks have equally many."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import numpy as np
import numpy.typing as npt

from transferqueue.workers.outputs import current_outputs

PADDED_ROWS = "_tq_padded_rows"
"""The keyword with which a group tells a rank ``(rows, pads)`` of batches by value; metadata says it by itself."""

TAKES_PADDED_ROWS = "_tq_takes_padded_rows"
"""The attribute of a method that takes that keyword."""

_by_value: ContextVar[tuple[int, int] | None] = ContextVar("_by_value", default=None)


def padding_mask() -> npt.NDArray[np.bool_] | None:
    """In a registered method: True for each row of its first batch that is a pad, bool ``[rows]``.

    A method that sums or averages over its rows leaves these out: ``loss[~torch.from_numpy(padding_mask())].mean()``.
    What it returns row for row, and what a rank with nothing but pads returns, the group leaves out. None in a call
    whose batch was not padded, other than metadata's, which always says.
    """
    outputs = current_outputs.get()
    if outputs is not None:
        return np.asarray(outputs.rows.padding_mask, dtype=np.bool_)
    padded = _by_value.get()
    return None if padded is None else np.arange(padded[0]) >= padded[0] - padded[1]


def call_padded(method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Runs a method whose keywords have `PADDED_ROWS`, which it does not see."""
    token = _by_value.set(kwargs.pop(PADDED_ROWS))
    try:
        return method(*args, **kwargs)
    finally:
        _by_value.reset(token)


async def async_call_padded(method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`call_padded` for coroutine methods."""
    token = _by_value.set(kwargs.pop(PADDED_ROWS))
    try:
        return await method(*args, **kwargs)
    finally:
        _by_value.reset(token)
