"""A result that is fetched and collected when it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transferqueue.controller.describe.telling import telling
from transferqueue.workers.futures import Future


class CollectedFuture(Future):
    """Fetched once, by the first `get` that does not time out.

    Args:
        fetch: waits, at most so many seconds, for what was started.
        ready: whether `fetch` would return at once.
        collect: makes the result of it.
    """

    def __init__(
        self, fetch: Callable[[float | None], Any], ready: Callable[[], bool], collect: Callable[[Any], Any]
    ) -> None:
        self._fetch = fetch
        self._ready = ready
        self._collect = collect
        self._result: tuple[Any] | None = None
        self.on_error: Callable[[BaseException], object] | None = None
        """Told what `fetch` raises, other than that the ranks have not answered yet."""

    def get(self, timeout_s: float | None = None) -> Any:
        if self._result is None:
            with telling(self.on_error):
                outputs = self._fetch(timeout_s)
            self._result = (self._collect(outputs),)
        return self._result[0]

    def done(self) -> bool:
        return self._result is not None or self._ready()
