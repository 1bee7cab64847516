"""Many processes of one kind that begin at the same moment: what the claims about concurrency are measured with."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import transferqueue as tq
from bench.consumer import Consumer

_PRELOAD = ["numpy", "torch", "tensordict", "transferqueue.session", "bench.workload"]
_HEAD_START_S = 0.15


class Member:
    """A process attached to a session by name; classes of the claims inherit it."""

    def __init__(self, session: str) -> None:
        tq.init(session=session)
        self.client = tq.get_client()

    def close(self) -> None:
        tq.close()


class Crew:
    """`count` processes that run `make(session, number, *arguments)`."""

    def __init__(self, count: int, make: Callable[..., Any], session: str, *arguments: Any) -> None:
        # One server imports everything once, and every process is forked from it.
        multiprocessing.get_context("forkserver").set_forkserver_preload(_PRELOAD)
        self.members: list[Consumer] = []
        try:
            for number in range(count):
                self.members.append(Consumer(make, session, number, *arguments, start_method="forkserver"))
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        return len(self.members)

    def together(self, name: str, *arguments: Any, of: int | None = None) -> list[Any]:
        """Calls `name(begin_s, *arguments)` of the first `of` members; they are to begin at that monotonic time."""
        chosen = self.members[: len(self.members) if of is None else of]
        begin_s = time.monotonic() + _HEAD_START_S
        for member in chosen:
            member.start(name, begin_s, *arguments)
        return [member.finish() for member in chosen]

    def close(self) -> None:
        for member in self.members:
            member.close()


@contextmanager
def crew(count: int, make: Callable[..., Any], session: str, *arguments: Any) -> Iterator[Crew]:
    opened = Crew(count, make, session, *arguments)
    try:
        yield opened
    finally:
        opened.close()


def sleep_until(monotonic_s: float) -> None:
    time.sleep(max(0.0, monotonic_s - time.monotonic()))


def quantile(values: list[float], share: float) -> float:
    """The smallest value that at least `share` of all values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]
