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
    child may share the description. Where somebody closed the descriptor under us (who becomes a daemon closes all of
    them), its number may be another file's: then no lock is to be had, and the path names nothing that is ours."""

    def __init__(self, path: str, *, create: bool = False) -> None:
        """Opens without locking.

        Raises:
            FileNotFoundError: there is none, and `create` is false. UntrustedFileError: it is not this user's alone.
        """
        self.path = path
        self._fd = _created(path) if create else open_private(path, os.O_RDWR)
        self._file = _file_of(self._fd)

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
        if not self.is_open():
            return False
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
        # Asked last: while the file is open, no other has its number.
        return (there.st_dev, there.st_ino) == self._file and self.is_open()

    def close(self) -> None:
        """Idempotent."""
        if self.is_open():
            os.close(self._fd)
        self._fd = -1

    def is_open(self) -> bool:
        """Not closed, by `close` or under us."""
        return self._fd >= 0 and _file_of(self._fd) == self._file


def _file_of(fd: int) -> tuple[int, int] | None:
    try:
        status = os.fstat(fd)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _created(path: str) -> int:
    while True:
        try:
            return create_private(path)
        except FileExistsError:
            with contextlib.suppress(FileNotFoundError):  # removed in between
                return open_private(path, os.O_RDWR)
