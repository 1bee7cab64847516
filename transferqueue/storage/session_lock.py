"""The lock file that decides whether a session lives.

Whoever is attached holds it shared (flock), from before the session can be seen until detached; the kernel drops it
when a process dies. Removal needs it exclusive. A lock is only worth something on the file that the path names now: a
session may have been removed, and one of the same name made, while we waited.
"""

from __future__ import annotations

import contextlib
import fcntl
import os

from transferqueue.storage.private_files import create_private, open_private


class SessionLock:
    """One open file description of a lock file. `close` drops the lock; nothing else here ever unlocks, since a forked
    child may share the description."""

    def __init__(self, path: str, *, create: bool = False) -> None:
        """Opens without locking.

        Raises:
            FileNotFoundError: there is none, and `create` is false. UntrustedFileError: it is not this user's alone.
        """
        self.path = path
        self._fd = _created(path) if create else open_private(path, os.O_RDWR)

    def try_shared(self) -> bool:
        """False when somebody holds it exclusively."""
        return self._try(fcntl.LOCK_SH)

    def try_exclusive(self) -> bool:
        """False when anybody else holds it. A shared hold of this object is lost either way."""
        return self._try(fcntl.LOCK_EX)

    def wait_exclusive(self) -> None:
        """Blocks until nobody else holds it."""
        fcntl.flock(self._fd, fcntl.LOCK_EX)

    def _try(self, kind: int) -> bool:
        try:
            fcntl.flock(self._fd, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def is_current(self) -> bool:
        """Whether the path still names the file that is locked."""
        try:
            there = os.stat(self.path, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return False
        ours = os.fstat(self._fd)
        return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)

    def close(self) -> None:
        """Idempotent."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with contextlib.suppress(OSError):  # closed by somebody who closes all descriptors (daemonisation)
                os.close(fd)


def _created(path: str) -> int:
    while True:
        try:
            return create_private(path)
        except FileExistsError:
            with contextlib.suppress(FileNotFoundError):  # removed in between
                return open_private(path, os.O_RDWR)
