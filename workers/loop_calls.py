"""Calls of methods in an event loop, which a rank whose class has coroutine methods runs all of them in."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from transferqueue.workers.arguments import Broadcast, PerRank
from transferqueue.workers.futures import Future, async_received
from transferqueue.workers.register import registration_of


async def call_in_loop(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What a method returns. Futures that it does not want as such are awaited before it is called: a method that is no
    coroutine would hold the loop while it waits, and with it what it waits for, if that runs here too."""
    if has_futures(args, kwargs) and wants_results(function):
        args, kwargs = await async_received(args, kwargs)
    output = function(*args, **kwargs)
    return await output if inspect.isawaitable(output) else output


def has_futures(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether one of the arguments is a future, as it is or for each rank."""
    return any(isinstance(_sample(value), Future) for value in (*args, *kwargs.values()))


def _sample(value: Any) -> Any:
    if isinstance(value, Broadcast):
        return value.value
    return value[0] if isinstance(value, PerRank) and value else value


def wants_results(function: object) -> bool:
    """Whether a method was registered to get what futures give, not the futures."""
    registration = registration_of(function)
    return registration is not None and registration.materialize_futures
