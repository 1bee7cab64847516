"""Results that are still being computed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any


class Future(ABC):
    """The result of a non-blocking call on a group. `get` may be called again and gives the same result."""

    @abstractmethod
    def get(self, timeout_s: float | None = None) -> Any:
        """Waits for the result. Raises what the call raised, `TransferTimeoutError` after `timeout_s`."""

    @abstractmethod
    def done(self) -> bool:
        """Whether `get` would return (or raise) at once."""


def materialized(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with every `Future` replaced by its result."""
    return (
        tuple(arg.get() if isinstance(arg, Future) else arg for arg in args),
        {name: value.get() if isinstance(value, Future) else value for name, value in kwargs.items()},
    )
