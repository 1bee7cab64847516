"""One pull a node: who copies payload from another node locks its names first, and finds it there when it waited.

Locks are those of the kernel on ranges of a file in the session directory, one byte a name, by open file description:
of any number of names at once, exactly those that overlap exclude each other, threads of one process too, and they go
with the process that held them, however it died. A range is taken in ascending order, so that two that want several
ranges each do not wait for each other.
"""

from __future__ import annotations

import fcntl
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from transferqueue.errors import TransferTimeoutError
from transferqueue.nodes.names import Names, runs_of

# struct flock with 64-bit offsets: type, whence, start, length, pid (0 for locks of a description).
_FLOCK = struct.Struct("hhqqi4x")
_FIRST_LOOK_S = 0.0005
_LONGEST_LOOK_S = 0.01
# Beyond so many stretches all that lies between them is locked as one.
_MOST_RUNS = 256

# Descriptors of this process's locks: a child of a fork shares them, and would keep the locks as long as it lives.
_held: set[int] = set()
_guard = threading.Lock()


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
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with _guard:
        _held.add(fd)
    try:
        yield _take(fd, _ranges(names), until_s, wait)
    finally:
        with _guard:
            ours = fd in _held  # in a child of a fork that happened meanwhile it is closed already
            _held.discard(fd)
        if ours:
            os.close(fd)


def _ranges(names: Names) -> Sequence[tuple[int, int]]:
    runs = runs_of(names)
    return runs if len(runs) <= _MOST_RUNS else [(runs[0][0], runs[-1][1])]


def _take(fd: int, ranges: Sequence[tuple[int, int]], until_s: float | None, wait: Callable[[float], None]) -> bool:
    waited = False
    for first, end in ranges:
        wanted = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, first, end - first, 0)
        look_s = _FIRST_LOOK_S
        while True:
            try:
                fcntl.fcntl(fd, fcntl.F_OFD_SETLK, wanted)
                break
            except (BlockingIOError, PermissionError):
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


def _after_fork_in_child() -> None:
    global _guard
    _guard = threading.Lock()
    for fd in _held:
        os.close(fd)
    _held.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
