"""Which rows of a batch are there only so that all ranks have equally many."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from transferqueue.workers.outputs import current_outputs

TAKES_PADDED_BATCHES = "_tq_takes_padded_batches"
"""The attribute of a method that takes a `PaddedBatch` in place of a batch."""


@dataclass(frozen=True)
class PaddedBatch:
    """A batch by value of whose `rows` the last `pads` are pads: how a group tells a rank, as metadata does by itself.
    The method gets the batch."""

    batch: Any
    rows: int
    pads: int


_by_value: ContextVar[PaddedBatch | None] = ContextVar("_by_value", default=None)


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
    return None if padded is None else np.arange(padded.rows) >= padded.rows - padded.pads


def padded_batch(args: Sequence[Any], kwargs: Mapping[str, Any]) -> PaddedBatch | None:
    """The argument that is one, if there is."""
    # On the path of every call of every registered method: two loops, no allocation.
    for value in args:
        if type(value) is PaddedBatch:
            return value
    if kwargs:
        for value in kwargs.values():
            if type(value) is PaddedBatch:
                return value
    return None


def call_padded(method: Callable[..., Any], padded: PaddedBatch, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Runs a method with the batch in place of `padded`, for which `padding_mask` answers meanwhile."""
    token = _by_value.set(padded)
    try:
        return method(*_unwrapped(args), **dict(zip(kwargs, _unwrapped(kwargs.values()), strict=True)))
    finally:
        _by_value.reset(token)


async def async_call_padded(
    method: Callable[..., Any], padded: PaddedBatch, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """`call_padded` for coroutine methods."""
    token = _by_value.set(padded)
    try:
        return await method(*_unwrapped(args), **dict(zip(kwargs, _unwrapped(kwargs.values()), strict=True)))
    finally:
        _by_value.reset(token)


def _unwrapped(values: Iterable[Any]) -> list[Any]:
    return [value.batch if type(value) is PaddedBatch else value for value in values]
