"""Results that are still being computed."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from typing import Any, ClassVar


class Future(ABC):
    """The result of a non-blocking call on a group. `get` may be called again and gives the same result."""

    travels: ClassVar[bool] = False
    """Whether a group sends it to its ranks as it is, and they wait for what they need of it; else the call with such
    an argument waits here."""

    @abstractmethod
    def get(self, timeout_s: float | None = None) -> Any:
        """Waits for the result. Raises what the call raised, `TransferTimeoutError` after `timeout_s`."""

    @abstractmethod
    def done(self) -> bool:
        """Whether `get` would return (or raise) at once."""

    def __await__(self) -> Generator[Any, None, Any]:
        """The result, waited for without blocking the event loop."""
        return asyncio.to_thread(self.get).__await__()


def received(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with every `Future` replaced by its result."""
    return (
        tuple(arg.get() if isinstance(arg, Future) else arg for arg in args),
        {name: value.get() if isinstance(value, Future) else value for name, value in kwargs.items()},
    )


async def async_received(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """`received` that leaves the event loop free: what a future waits for may run in it."""
    return (
        tuple([await arg if isinstance(arg, Future) else arg for arg in args]),
        {name: await value if isinstance(value, Future) else value for name, value in kwargs.items()},
    )


def materialized(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with every `Future` that does not travel replaced by its result."""
    return (
        tuple(arg.get() if isinstance(arg, Future) and not arg.travels else arg for arg in args),
        {name: v.get() if isinstance(v, Future) and not v.travels else v for name, v in kwargs.items()},
    )
