"""The spill file's life on disk: made with the session, removed with it, and never taken for somebody else's.

It lies outside of shared memory, where it survives a reboot, and maybe in a directory that several containers share. So
whoever has it open holds a shared lock (flock) on it, through the descriptor that the native core keeps: a spill file
whose lock is free belongs to nobody any more. The session's own is known by its inode besides, so that its end removes
it although views in other processes still map it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time

from transferqueue import _native
from transferqueue.errors import CorruptSegmentError
from transferqueue.logs import get_logger
from transferqueue.storage.names import SPILL_ENDING, SessionPaths

_log = get_logger("storage")
_MODE = 0o600
_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_TRIES = 20
_RETRY_S = 0.02


def create_spill_file(paths: SessionPaths, directory: str) -> int:
    """A new empty file; its descriptor holds the lock. A leftover of a dead session of this name goes first.

    Raises:
        OSError: the name is taken, by another user, by what is no spill file, or by a session that lives (in another
            container); or the directory cannot be written to.
    """
    path = paths.spill_file(directory)
    for _ in range(_TRIES):
        _remove_leftover(path)
        try:
            fd = os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, _MODE)
        except FileExistsError as error:
            raise OSError(
                f"cannot create the spill file {path}: the name is taken, by a file that this project did not make or "
                "by a session that lives (in another container?); choose another session name or spill.dir",
            ) from error
        if _hold(fd) and _names(path, fd):
            _remember(paths, fd)
            return fd
        os.close(fd)  # somebody who looks for leftovers met it before it was locked
    raise OSError(f"cannot create the spill file {path}: it is removed again and again")


def open_spill_file(paths: SessionPaths, directory: str) -> int:
    """The file of a session that exists; its descriptor holds the lock.

    Raises:
        CorruptSegmentError: it is gone, is no file of ours, or another one has its name; named.
    """
    path = paths.spill_file(directory)
    try:
        fd = os.open(path, _FLAGS)
    except OSError as error:
        raise CorruptSegmentError(
            f"session {paths.name!r} exists but its spill file {path} is missing or cannot be opened ({error}): it was "
            "removed from outside. Processes that are attached go on; end the session and start a new one",
            path=path,
        ) from error
    found = os.fstat(fd)
    if found.st_uid != paths.uid or not stat.S_ISREG(found.st_mode):
        os.close(fd)
        raise CorruptSegmentError(
            f"spill file {path} of session {paths.name!r} is no file of this user (uid {found.st_uid}); it is not used",
            path=path,
        )
    _hold(fd)
    return fd


def remove_spill_file(paths: SessionPaths, directory: str) -> None:
    """At the end of the session, by whoever holds the session's lock. What is not the session's own stays."""
    path = paths.spill_file(directory)
    try:
        found = os.lstat(path)
    except OSError:
        return  # gone, or its directory is
    if _remembered(paths) == (found.st_dev, found.st_ino):
        _unlink(path)
    else:
        _remove_leftover(path)


def remove_leftover_spill_files(directory: str) -> list[str]:
    """Those of this user's sessions in `directory` that no process has open: after a reboot, for instance.

    Returns:
        their paths.
    """
    removed = []
    prefix = f"tq-{os.getuid()}-"
    try:
        entries = sorted(os.listdir(directory))
    except OSError:
        return []
    for entry in entries:
        if not entry.startswith(prefix) or not entry.endswith(SPILL_ENDING):
            continue
        paths = SessionPaths(entry[len(prefix) : -len(SPILL_ENDING)], os.getuid())
        # A session that stands, alive or dead, is removed whole or not at all.
        if not os.path.lexists(paths.directory) and _remove_leftover(os.path.join(directory, entry)):
            removed.append(os.path.join(directory, entry))
    return removed


def _remove_leftover(path: str) -> bool:
    """Whether there was one. Only ours, only a spill file, only one that nobody has open."""
    try:
        fd = os.open(path, _FLAGS)
    except OSError:
        return False
    try:
        if os.fstat(fd).st_uid != os.getuid() or not _native.is_spill_file(fd):
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return _names(path, fd) and _unlink(path)
    finally:
        os.close(fd)


def _unlink(path: str) -> bool:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    except PermissionError:
        _log.warning("%s cannot be removed; it is left alone", path)
        return False
    return True


def _hold(fd: int) -> bool:
    """Shared; who looks for leftovers holds it exclusively for a moment. True also where there are no locks."""
    for _ in range(_TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_RETRY_S)
        except OSError as error:
            _log.warning(
                "the file system of the spill file has no locks (%s): leftovers are not told from files in use", error
            )
            return True
        else:
            return True
    return False


def _names(path: str, fd: int) -> bool:
    try:
        there = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    ours = os.fstat(fd)
    return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)


def _remember(paths: SessionPaths, fd: int) -> None:
    found = os.fstat(fd)
    with open(paths.spill_inode, "w", encoding="ascii") as file:
        file.write(f"{found.st_dev} {found.st_ino}")


def _remembered(paths: SessionPaths) -> tuple[int, int] | None:
    with contextlib.suppress(OSError, ValueError), open(paths.spill_inode, encoding="ascii") as file:
        device, inode = map(int, file.read().split())
        return device, inode
    return None
