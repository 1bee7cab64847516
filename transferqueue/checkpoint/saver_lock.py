"""One saver at a time for each place.

The lock is on the empty file ``.<name>.saving`` beside the place, which is there while somebody saves. It is a file of
its own, because directories change their names in a save: a lock on the one that is being written would be under
another name after the swap, and under its own name would be the old one, which nobody has locked and which is being
removed.

Why two never hold it: who has locked the file looks whether the name still means it, and starts anew if not. Only its
holder takes the name away, as the last thing. So as long as one holds it, the name means the file that it has locked,
and nobody else gets a lock on that one; who has an older file in hand finds that the name means none or another.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from transferqueue.checkpoint.leftovers import refuse_foreign

_NOT_A_FILE = frozenset({errno.ELOOP, errno.EISDIR, errno.ENXIO})
# Some network file systems. Savers there must not meet.
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EINVAL, errno.EBADF})


@contextlib.contextmanager
def saver_lock(target: Path) -> Iterator[None]:
    """Held until the block ends, or the process: the kernel ends locks of the dead.

    Raises:
        BlockingIOError: somebody else holds it.
        FileExistsError: the name of the lock's file is taken by something else.
    """
    path = target.with_name(f".{target.name}.saving")
    while True:
        fd = _open(path)
        opened = os.fstat(fd)
        try:
            _lock(fd, target)
            if not _is_still(path, fd):
                continue  # its holder has just finished
            try:
                yield
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
            return
        finally:
            _close(fd, opened)


def _close(fd: int, opened: os.stat_result) -> None:
    """Unless somebody else did, and has given the number to a file of his own."""
    with contextlib.suppress(OSError):
        if os.path.samestat(os.fstat(fd), opened):
            os.close(fd)


def _open(path: Path) -> int:
    try:
        # For writing, since locks of NFS want that.
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except OSError as error:
        if error.errno == errno.EACCES and os.path.lexists(path):
            refuse_foreign(os.lstat(path), path)
        if error.errno not in _NOT_A_FILE:
            raise
        raise _taken(path) from None
    try:
        found = os.fstat(fd)
        refuse_foreign(found, path)
        # Of a file with another name, too, a lock would be seen there.
        if not stat.S_ISREG(found.st_mode) or found.st_size or found.st_nlink > 1:
            raise _taken(path)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _taken(path: Path) -> FileExistsError:
    return FileExistsError(errno.EEXIST, "not an empty file; a save needs this name for its lock", str(path))


def _lock(fd: int, target: Path) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BlockingIOError(errno.EAGAIN, "another process is saving to the same place", str(target)) from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise


def _is_still(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(os.lstat(path), os.fstat(fd))
    except FileNotFoundError:
        return False
