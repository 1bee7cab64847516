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
import time

from transferqueue import _native
from transferqueue.errors import CorruptSegmentError, UntrustedFileError
from transferqueue.logs import get_logger
from transferqueue.printable import printable
from transferqueue.storage.names import SPILL_ENDING, SessionPaths
from transferqueue.storage.private_files import (
    create_private,
    open_private,
    read_private,
    refuse_untrusted,
    user_text,
    write_private,
)

_log = get_logger("storage")
_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_TRIES = 20
_RETRY_S = 0.02


def create_spill_file(paths: SessionPaths, directory: str) -> int:
    """A new empty file; its descriptor holds the lock. A leftover of a dead session of this name goes first.

    Raises:
        UntrustedFileError: the name is taken by another user.
        OSError: by what is no spill file, or by a session that lives (in another container); or the directory cannot be
            written to.
    """
    path = paths.spill_file(directory)
    for _ in range(_TRIES):
        remove_leftover(path)
        try:
            fd = create_private(path)
        except FileExistsError as error:
            refuse_untrusted(path)
            raise OSError(
                f"cannot create the spill file {path}: the name is taken, by a file that this project did not make or "
                "by a session that lives (in another container?); choose another session name or spill.dir",
            ) from error
        if hold(fd) and still_names(path, fd):
            remember(paths.spill_inode, fd)
            return fd
        os.close(fd)  # somebody who looks for leftovers met it before it was locked
    raise OSError(f"cannot create the spill file {path}: it is removed again and again")


def open_spill_file(paths: SessionPaths, directory: str) -> int:
    """The file of a session that exists; its descriptor holds the lock.

    Raises:
        CorruptSegmentError: it is gone. UntrustedFileError: it is not this user's alone. Both name it.
    """
    path = paths.spill_file(directory)
    try:
        fd = open_private(path, os.O_RDWR)
    except UntrustedFileError:
        raise
    except OSError as error:
        raise CorruptSegmentError(
            f"session {paths.name!r} exists but its spill file {path} is missing or cannot be opened ({error}): it was "
            "removed from outside. Processes that are attached go on; end the session and start a new one",
            path=path,
        ) from error
    hold(fd)
    return fd


def remove_spill_file(paths: SessionPaths, directory: str) -> None:
    """At the end of the session, by whoever holds the session's lock. What is not the session's own stays."""
    remove_remembered(paths.spill_file(directory), paths.spill_inode)


def remove_remembered(path: str, note: str, *, payload: bool = False) -> None:
    """Removes the session's own file, which others may have open, known by what `remember` noted; or a leftover."""
    try:
        found = os.lstat(path)
    except OSError:
        return  # gone, or its directory is
    if _remembered(note) == (found.st_dev, found.st_ino):
        _unlink(path)
    elif not remove_leftover(path, payload=payload) and found.st_uid != os.geteuid():
        _log.warning("%s belongs to %s; it is left alone", printable(path), user_text(found.st_uid))


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
        if not os.path.lexists(paths.directory) and remove_leftover(os.path.join(directory, entry)):
            removed.append(os.path.join(directory, entry))
    return removed


def remove_leftover(path: str, *, payload: bool = False, dry_run: bool = False) -> bool:
    """Whether there was one. Only ours, only a spill file (or, `payload`, the file of a `storage.dir`, which has the
    same lock), only one that nobody has open."""
    try:
        fd = os.open(path, _FLAGS)
    except OSError:
        return False
    try:
        if os.fstat(fd).st_uid != os.geteuid() or not (payload or _native.is_spill_file(fd)):
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return still_names(path, fd) and (dry_run or _unlink(path))
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


def hold(fd: int) -> bool:
    """Shared; who looks for leftovers holds it exclusively for a moment. True also where there are no locks."""
    for _ in range(_TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_RETRY_S)
        except OSError as error:
            _log.warning(
                "the file system of a file of the session has no locks (%s): leftovers are not told from files in use",
                error,
            )
            return True
        else:
            return True
    return False


def still_names(path: str, fd: int) -> bool:
    try:
        there = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    ours = os.fstat(fd)
    return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)


def remember(note: str, fd: int) -> None:
    """Notes in the session's directory which file that is."""
    found = os.fstat(fd)
    with contextlib.suppress(FileNotFoundError):  # no session around it
        write_private(note, f"{found.st_dev} {found.st_ino}")


def _remembered(note: str) -> tuple[int, int] | None:
    with contextlib.suppress(OSError, ValueError):
        device, inode = map(int, read_private(note).split())
        return device, inode
    return None
