"""The session directory: made whole under its lock, described in one JSON file, removed under its lock.

Order of making: a directory with a lock that we hold, under a temporary name -> renamed to the session's name (this
claims the name) -> the description under a name that nobody joins by (it says where the payload file will be) ->
segments and index -> renamed to ``session.json`` (now it can be joined). Order of removal: the reverse. Whoever dies in
between leaves a directory whose lock is free, which anybody of the same user may remove.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from dataclasses import asdict, dataclass, field
from typing import Any

import msgspec

from transferqueue.errors import CorruptSegmentError, LayoutMismatchError, UntrustedFileError
from transferqueue.logs import get_logger
from transferqueue.printable import printable
from transferqueue.storage.checked_json import check, write_checked
from transferqueue.storage.names import SHM_DIRECTORY, SessionPaths, temporary_directory
from transferqueue.storage.private_files import (
    make_private_directory,
    open_private,
    read_private,
    refuse_untrusted,
    remove_tree,
    user_text,
    write_private,
)
from transferqueue.storage.segments import unlink_segments
from transferqueue.storage.session_lock import SessionLock

_log = get_logger("storage")
FORMAT_VERSION = 3
INDEX_FILES = ("data.mdb", "lock.mdb", "slots.lock")  # of LMDB, and the lock around its reader slots
_NAME_TAKEN = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)
_warned_foreign: set[str] = set()


@dataclass(frozen=True)
class SessionDescription:
    """What ``session.json`` says.

    Attributes:
        name: the session.
        creator_pid: for people; it decides nothing.
        pid_namespace: of the creator; a process of another one cannot judge who is alive.
        host: the kernel of the creator: this machine since it was started. A session of another is none of ours.
        layout_version: of the native core that formatted the segments.
        payload_directory: `storage.dir`, or None.
        created_s: seconds since the epoch.
        config: dotted key -> value of the session's own configuration.
        sampler: see `transferqueue.samplers.registry`.
    """

    name: str
    creator_pid: int
    pid_namespace: str
    host: str
    layout_version: int
    payload_directory: str | None
    created_s: float
    config: dict[str, Any] = field(default_factory=dict)
    sampler: dict[str, str] = field(default_factory=dict)

    @property
    def spill_directory(self) -> str | None:
        """`spill.dir`, or None."""
        return self.config.get("spill.dir")


def pid_namespace() -> str:
    """The kernel's name of this process's pid namespace."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return "unknown"


def host_id() -> str:
    """This machine since it was started: the same in all its containers, another one everywhere else."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return "unknown"


def claim_directory(paths: SessionPaths) -> SessionLock | None:
    """Makes the session directory, its lock held by the returned object; None when the name is taken.

    Raises:
        UntrustedFileError: by something that is not this user's alone.
    """
    while True:
        temporary = temporary_directory("new")
        lock = None
        try:
            make_private_directory(temporary)
            lock = SessionLock(f"{temporary}/session.lock", create=True)
            if not lock.try_shared():
                raise FileNotFoundError(errno.ENOENT, "taken for a leftover before it was locked", temporary)
            for part in ("index", "leases"):
                make_private_directory(f"{temporary}/{part}")
            refuse_untrusted(paths.directory, directory=True)  # root could put its own in the place of an empty one
            os.rename(temporary, paths.directory)
        except OSError as error:
            if lock is not None:
                lock.close()
            remove_tree(temporary)
            if error.errno in (*_NAME_TAKEN, errno.EPERM, errno.EACCES):
                refuse_untrusted(paths.directory, directory=True)
                if os.path.lexists(paths.directory):
                    return None
                if error.errno in _NAME_TAKEN:
                    continue  # whoever had it has just removed it
            if error.errno == errno.ENOENT and os.path.isdir(SHM_DIRECTORY):
                continue  # somebody cleans up, and met it before it was locked
            raise
        lock.path = paths.lock
        return lock


def write_description(paths: SessionPaths, description: SessionDescription, *, hidden: bool = False) -> None:
    """Makes the session joinable; `hidden`: only tells whoever removes it what to remove."""
    write_private(paths.hidden_description, write_checked({"format": FORMAT_VERSION, **asdict(description)}))
    if not hidden:
        os.rename(paths.hidden_description, paths.description)


def read_description(paths: SessionPaths) -> SessionDescription | None:
    """None while the session is still being made, or was left half made.

    Raises:
        LayoutMismatchError: written by another version.
        CorruptSegmentError: not readable as a description, or not what was written.
        UntrustedFileError: not this user's alone.
    """
    return _read_description(paths, paths.description)


def _read_description(paths: SessionPaths, path: str) -> SessionDescription | None:
    try:
        values = json.loads(read_private(path))
        version = values["format"]
        if version != FORMAT_VERSION:
            raise LayoutMismatchError(
                f"session {paths.name!r} was written by another version of this package (description format {version}, "
                f"ours is {FORMAT_VERSION}); use that version, or remove it with `tq clean`",
                expected=FORMAT_VERSION,
                found=version,
                path=path,
            )
        check(values)
        del values["format"]
        description = msgspec.convert(values, SessionDescription, strict=True)
        if description.name != paths.name:
            raise ValueError(f"it is that of session {description.name!r}")
        return description
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        if isinstance(error, LayoutMismatchError):
            raise
        raise CorruptSegmentError(f"{path} is not a session description: {error}", path=path) from error


def check_private(paths: SessionPaths) -> None:
    """Whether everything in the session directory that a process opens is this user's alone; quiet about what is not
    there. What passed cannot change under us: nobody else can put anything there.

    Raises:
        UntrustedFileError: something is not; named. FileNotFoundError: there is no such directory.
    """
    directory = open_private(paths.directory, directory=True)
    try:
        for name in ("index", "leases"):
            refuse_untrusted(f"{paths.directory}/{name}", directory=True)
        for name in ("session.lock", *(f"index/{file}" for file in INDEX_FILES)):
            refuse_untrusted(f"{paths.directory}/{name}")
    finally:
        os.close(directory)


def owned_by_us(path: str) -> bool:
    """False for what another user left in the sticky directory (one warning each) and for what is gone."""
    try:
        uid = os.stat(path, follow_symlinks=False).st_uid
    except FileNotFoundError:
        return False
    if uid == os.geteuid():
        return True
    if path not in _warned_foreign:
        _warned_foreign.add(path)
        _log.warning("%s belongs to another user (%s); it is left alone", printable(path), user_text(uid))
    return False


def directories_elsewhere(paths: SessionPaths) -> tuple[str | None, str | None]:
    """Where the session has files outside of shared memory, (`storage.dir`, `spill.dir`), as its description says,
    whichever version wrote it; None where it has none, or that cannot be read."""
    for path in (paths.description, paths.hidden_description):  # hidden: somebody died making it, or removing it
        try:
            values = json.loads(read_private(path))
            found = (values["payload_directory"], values["config"].get("spill.dir"))
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            continue
        payload, spill = (directory if isinstance(directory, str) else None for directory in found)
        return payload, spill
    return None, None


def remove_session(paths: SessionPaths, *, segments: bool = True, lock: SessionLock | None = None) -> None:
    """Removes every name of the session (`segments` false: only its directory). The caller holds its lock. Mappings and
    views stay valid.

    Args:
        lock: to close when nothing has the session's name any more: its descriptor may be the last one, and what lies
            in a directory cannot be listed without.
    """
    elsewhere = directories_elsewhere(paths)
    with contextlib.suppress(FileNotFoundError):
        os.rename(paths.description, paths.hidden_description)
    if segments:
        unlink_segments(paths, *elsewhere)
    gone = temporary_directory("gone")
    try:
        os.rename(paths.directory, gone)
    except FileNotFoundError:
        return
    if lock is not None:
        lock.close()
    remove_tree(gone)


def remove_if_dead(paths: SessionPaths) -> bool:
    """Removes the session if no process is attached. False: it is in use, gone, or not ours."""
    if not owned_by_us(paths.directory):
        return False
    try:
        # A session is renamed into place with its lock inside: a directory without one was damaged from outside. It
        # gets one, or whoever found none might remove what others have put in its place since.
        lock = SessionLock(paths.lock, create=True)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except UntrustedFileError as error:
        _log.warning("session %r is left alone: %s", paths.name, error)
        return False
    try:
        if not lock.try_exclusive() or not lock.is_current():
            return False
        remove_session(paths)
        return True
    finally:
        lock.close()


def is_in_use(paths: SessionPaths) -> bool:
    """Whether any process is attached now (or a removal is under way)."""
    try:
        lock = SessionLock(paths.lock)
    except OSError:
        return False
    try:
        return not lock.try_exclusive()
    finally:
        lock.close()
