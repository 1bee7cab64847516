"""The result of a non-blocking call on a Ray worker group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from transferqueue.controller.describe.telling import telling
from transferqueue.workers.futures import Future
from transferqueue.workers.ray_runtime import require_ray


class GroupFuture(list[Any], Future):
    """What the ranks will return. As a list it holds one Ray reference per rank, so ``ray.get(future)`` works and gives
    the raw outputs; `get` gives the collected result, with errors named as in a blocking call. Can be awaited.
    """

    def __init__(
        self,
        refs: Sequence[Any],
        gather: Callable[[Sequence[Any], float | None], list[Any]],
        finish: Callable[[Any], Any],
    ) -> None:
        super().__init__(refs)
        self._gather = gather
        self._finish = finish
        self._result: tuple[Any] | None = None
        self.on_error: Callable[[BaseException], object] | None = None
        """Told what `get` raises, other than that the ranks have not answered yet."""

    def get(self, timeout_s: float | None = None) -> Any:
        if self._result is None:
            with telling(self.on_error):
                outputs = self._gather(list(self), timeout_s)
            self._result = (self._finish(outputs),)
        return self._result[0]

    def done(self) -> bool:
        if self._result is not None:
            return True
        ready, _ = require_ray("a worker group").wait(list(self), num_returns=len(self), timeout=0)
        return len(ready) == len(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)
