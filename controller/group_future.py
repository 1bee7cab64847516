"""The result of a non-blocking call on a Ray worker group."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from transferqueue.controller.collected_future import CollectedFuture
from transferqueue.workers.ray_runtime import require_ray


class GroupFuture(list[Any], CollectedFuture):
    """What the ranks will return. As a list it holds one Ray reference per rank, so ``ray.get(future)`` works and gives
    the raw outputs; `get` gives the collected result, with errors named as in a blocking call. Can be awaited.
    """

    def __init__(
        self,
        refs: Sequence[Any],
        gather: Callable[[Sequence[Any], float | None], list[Any]],
        finish: Callable[[Any], Any],
    ) -> None:
        list.__init__(self, refs)
        started = list(refs)  # not this object, which would hold the references until the garbage collector runs
        CollectedFuture.__init__(
            self, functools.partial(gather, started), functools.partial(_are_there, started), finish
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)


def _are_there(refs: Sequence[Any]) -> bool:
    ready, _ = require_ray("a worker group").wait(list(refs), num_returns=len(refs), timeout=0)
    return len(ready) == len(refs)
