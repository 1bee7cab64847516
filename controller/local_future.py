"""The result of a non-blocking call on a group in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future as Call
from typing import Any

from transferqueue.controller.describe.telling import telling
from transferqueue.workers.futures import Future


class LocalFuture(Future):
    """What the ranks will return; `get` gives the collected result. Can be awaited. `calls` has one call per rank."""

    def __init__(
        self,
        calls: Sequence[Call[Any]],
        gather: Callable[[float | None], list[Any]],
        finish: Callable[[list[Any]], Any],
    ) -> None:
        self.calls = list(calls)
        self._gather = gather
        self._finish = finish
        self._result: tuple[Any] | None = None
        self.on_error: Callable[[BaseException], object] | None = None
        """Told what `get` raises, other than that the ranks have not answered yet."""

    def get(self, timeout_s: float | None = None) -> Any:
        if self._result is None:
            with telling(self.on_error):
                outputs = self._gather(timeout_s)
            self._result = (self._finish(outputs),)
        return self._result[0]

    def done(self) -> bool:
        return all(call.done() for call in self.calls)
