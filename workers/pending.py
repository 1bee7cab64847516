"""Outputs of ranks that are still computed: Ray references, or the calls of ranks in this process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import Future as Call
from concurrent.futures import TimeoutError as CallTimeoutError
from dataclasses import dataclass
from typing import Any

from transferqueue.errors import TransferTimeoutError
from transferqueue.workers.ray_runtime import are_ready, fetch, is_reference


@dataclass(frozen=True)
class Known:
    """An output that is there: what a call of this process becomes when it goes to another one."""

    value: Any


def is_pending(value: object) -> bool:
    """Whether a value stands for an output that is still computed."""
    return isinstance(value, (Call, Known)) or is_reference(value)


def resolve(pending: Sequence[Any], timeout_s: float | None = None) -> list[Any]:
    """The outputs, in order. Raises what a call raised; `TransferTimeoutError` when one is not there in time."""
    until_s = None if timeout_s is None else time.monotonic() + timeout_s
    refs = [one for one in pending if not isinstance(one, (Call, Known))]
    fetched = iter(fetch(refs, timeout_s) if refs else [])
    outputs = []
    for one in pending:
        if isinstance(one, Known):
            outputs.append(one.value)
        elif isinstance(one, Call):
            outputs.append(_result(one, until_s, len(pending), timeout_s))
        else:
            outputs.append(next(fetched))
    return outputs


async def async_resolve(pending: Sequence[Any]) -> list[Any]:
    """`resolve` that leaves the event loop free: an output may come of another method in the same loop."""
    return list(await asyncio.gather(*map(_awaited, pending)))


def all_ready(pending: Sequence[Any]) -> bool:
    """Whether `resolve` would return, or raise, at once."""
    refs = [one for one in pending if not isinstance(one, (Call, Known))]
    return all(one.done() for one in pending if isinstance(one, Call)) and (not refs or are_ready(refs))


def portable(one: Any) -> Any:
    """What stands for the same output in another process. Waits for a call of this one."""
    return Known(one.result()) if isinstance(one, Call) else one


def _result(call: Call[Any], until_s: float | None, outputs: int, timeout_s: float | None) -> Any:
    try:
        return call.result(None if until_s is None else max(0.0, until_s - time.monotonic()))
    except CallTimeoutError as error:
        if call.done():  # what the method raised
            raise
        raise TransferTimeoutError(
            f"not all of {outputs} outputs were there after {timeout_s:g} s", timeout_s=timeout_s
        ) from error


async def _awaited(one: Any) -> Any:
    if isinstance(one, Known):
        return one.value
    return await (asyncio.wrap_future(one) if isinstance(one, Call) else one)
