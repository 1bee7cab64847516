"""One pull a node: who copies payload from another node locks its names first, and finds it there when it waited.

Locks are `range_locks` on a file in the session directory, one byte a name, of any number of names at once. A range is
taken in ascending order, so that two that want several ranges each do not wait for each other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from transferqueue.errors import TransferTimeoutError
from transferqueue.nodes.names import Names, runs_of
from transferqueue.nodes.range_locks import close_locks, open_locks, try_lock

_FIRST_LOOK_S = 0.0005
_LONGEST_LOOK_S = 0.01
# Beyond so many stretches all that lies between them is locked as one.
_MOST_RUNS = 256


@contextmanager
def pull_lock(
    path: str, names: Names, until_s: float | None, wait: Callable[[float], None] = time.sleep
) -> Iterator[bool]:
    """Holds the names; gives whether somebody else held one of them before.

    Args:
        path: the lock file, made when it is not there.
        until_s: monotonic time to give up at; None: never.
        wait: called while somebody else holds them with the seconds until the next try, may return before they are
            over; what it raises ends the wait.

    Raises:
        TransferTimeoutError: somebody held them until then.
    """
    fd = open_locks(path)
    try:
        yield _take(fd, _ranges(names), until_s, wait)
    finally:
        close_locks(fd)


def _ranges(names: Names) -> Sequence[tuple[int, int]]:
    runs = runs_of(names)
    return runs if len(runs) <= _MOST_RUNS else [(runs[0][0], runs[-1][1])]


def _take(fd: int, ranges: Sequence[tuple[int, int]], until_s: float | None, wait: Callable[[float], None]) -> bool:
    waited = False
    for first, end in ranges:
        look_s = _FIRST_LOOK_S
        while not try_lock(fd, first, end - first):
            waited = True
            if until_s is not None and time.monotonic() >= until_s:
                raise TransferTimeoutError(
                    "another process of this node copies the same rows from their node and is not done; look at that "
                    "process, or try again with a longer timeout",
                    missing=end - first,
                )
            # The lock has no queue and no wake-up that a deadline could end.
            wait(look_s)
            look_s = min(2 * look_s, _LONGEST_LOOK_S)
    return waited
