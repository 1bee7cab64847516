"""The kernel's locks on ranges of a file, by open file description: exactly those that overlap exclude each other,
threads of one process too, and they go with the process that held them, however it died."""

from __future__ import annotations

import fcntl
import os
import struct
import threading

# struct flock with 64-bit offsets: type, whence, start, length, pid (0 for locks of a description).
_FLOCK = struct.Struct("hhqqi4x")

# Descriptors of this process's locks: a child of a fork shares them, and would keep the locks as long as it lives.
_held: set[int] = set()
_guard = threading.Lock()


def open_locks(path: str) -> int:
    """A descriptor of its own of the file, made when it is not there; with it go its locks."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with _guard:
        _held.add(fd)
    return fd


def close_locks(fd: int) -> None:
    """Lets go of all that the descriptor has."""
    with _guard:
        ours = fd in _held  # in a child of a fork that happened meanwhile it is closed already
        _held.discard(fd)
    if ours:
        os.close(fd)


def try_lock(fd: int, first: int, nbytes: int) -> bool:
    """Takes the range for the descriptor, unless another has some of it; whether it has it now."""
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, first, nbytes, 0))
    except (BlockingIOError, PermissionError):
        return False
    return True


def unlock(fd: int, first: int, nbytes: int) -> None:
    """Lets go of the range."""
    fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, first, nbytes, 0))


def _after_fork_in_child() -> None:
    global _guard
    _guard = threading.Lock()
    for fd in _held:
        os.close(fd)
    _held.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
