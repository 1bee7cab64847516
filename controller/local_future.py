"""The result of a non-blocking call on a group in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future as Call
from typing import Any

from transferqueue.controller.collected_future import CollectedFuture


class LocalFuture(CollectedFuture):
    """What the ranks will return; `get` gives the collected result. Can be awaited. `calls` has one call per rank."""

    def __init__(
        self,
        calls: Sequence[Call[Any]],
        gather: Callable[[float | None], list[Any]],
        finish: Callable[[list[Any]], Any],
    ) -> None:
        started = self.calls = list(calls)
        super().__init__(gather, lambda: all(call.done() for call in started), finish)
