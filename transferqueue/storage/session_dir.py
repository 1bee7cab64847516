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
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import msgspec

from transferqueue.errors import CorruptSegmentError, LayoutMismatchError
from transferqueue.logs import get_logger
from transferqueue.storage.names import SEGMENT_ENDINGS, SHM_DIRECTORY, SessionPaths, temporary_directory
from transferqueue.storage.segments import unlink_segments
from transferqueue.storage.session_lock import SessionLock
from transferqueue.storage.small_files import read_small

_log = get_logger("storage")
FORMAT_VERSION = 1
_TEMPORARY_AGE_S = 60.0
_warned_foreign: set[str] = set()


@dataclass(frozen=True)
class SessionDescription:
    """What ``session.json`` says.

    Attributes:
        name: the session.
        creator_pid: for people; it decides nothing.
        pid_namespace: of the creator; a process of another one cannot judge who is alive.
        layout_version: of the native core that formatted the segments.
        payload_directory: `storage.dir`, or None.
        created_s: seconds since the epoch.
        config: dotted key -> value of the session's own configuration.
        sampler: see `transferqueue.samplers.registry`.
    """

    name: str
    creator_pid: int
    pid_namespace: str
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


def claim_directory(paths: SessionPaths) -> SessionLock | None:
    """Makes the session directory, its lock held by the returned object; None when the name is taken."""
    temporary = temporary_directory("new")
    os.mkdir(temporary, 0o700)
    lock = None
    try:
        lock = SessionLock(f"{temporary}/session.lock", create=True)
        lock.try_shared()
        for part in ("index", "leases"):
            os.mkdir(f"{temporary}/{part}", 0o700)
        os.rename(temporary, paths.directory)
    except OSError as error:
        if lock is not None:
            lock.close()
        shutil.rmtree(temporary, ignore_errors=True)
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            return None
        raise
    lock.path = paths.lock
    return lock


def write_description(paths: SessionPaths, description: SessionDescription, *, hidden: bool = False) -> None:
    """Makes the session joinable; `hidden`: only tells whoever removes it what to remove."""
    part = f"{paths.description}.part"
    with open(part, "w", encoding="utf-8") as file:
        json.dump({"format": FORMAT_VERSION, **asdict(description)}, file)
    os.rename(part, paths.hidden_description)
    if not hidden:
        os.rename(paths.hidden_description, paths.description)


def read_description(paths: SessionPaths) -> SessionDescription | None:
    """None while the session is still being made, or was left half made.

    Raises:
        LayoutMismatchError: written by another version.
        CorruptSegmentError: not readable as a description.
    """
    return _read_description(paths, paths.description)


def _read_description(paths: SessionPaths, path: str) -> SessionDescription | None:
    try:
        values = json.loads(read_small(path))
        version = values.pop("format")
        if version != FORMAT_VERSION:
            raise LayoutMismatchError(
                f"session {paths.name!r} was written by another version of this package (description format {version}, "
                f"ours is {FORMAT_VERSION}); use that version, or remove it with `tq clean`",
                expected=FORMAT_VERSION,
                found=version,
                path=path,
            )
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


def owned_by_us(path: str) -> bool:
    """False for what another user left in the sticky directory (one warning each) and for what is gone."""
    try:
        uid = os.stat(path, follow_symlinks=False).st_uid
    except FileNotFoundError:
        return False
    if uid == os.getuid():
        return True
    if path not in _warned_foreign:
        _warned_foreign.add(path)
        _log.warning("%s belongs to another user (uid %d); it is left alone", path, uid)
    return False


def remove_session(paths: SessionPaths) -> None:
    """Removes every name of the session. The caller holds its lock. Mappings and views stay valid."""
    payload_directory = spill_directory = None
    try:
        # Hidden: somebody died making it, or removing it.
        description = read_description(paths) or _read_description(paths, paths.hidden_description)
        if description is not None:
            payload_directory, spill_directory = description.payload_directory, description.spill_directory
    except (LayoutMismatchError, CorruptSegmentError) as error:
        _log.warning("removing session %r although its description is unreadable: %s", paths.name, error)
    with contextlib.suppress(FileNotFoundError):
        os.rename(paths.description, paths.hidden_description)
    unlink_segments(paths, payload_directory, spill_directory)
    gone = temporary_directory("gone")
    try:
        os.rename(paths.directory, gone)
    except FileNotFoundError:
        return
    shutil.rmtree(gone, ignore_errors=True)


def remove_if_dead(paths: SessionPaths) -> bool:
    """Removes the session if no process is attached. False: it is in use, gone, or not ours."""
    if not owned_by_us(paths.directory):
        return False
    try:
        lock = SessionLock(paths.lock)
    except (FileNotFoundError, NotADirectoryError):
        return _remove_lockless(paths)
    try:
        if not lock.try_exclusive() or not lock.is_current():
            return False
        remove_session(paths)
        return True
    finally:
        lock.close()


def _remove_lockless(paths: SessionPaths) -> bool:
    # A session is renamed into place with its lock inside: a directory without one was damaged from outside.
    if not os.path.isdir(paths.directory) or os.path.exists(paths.lock):
        return False
    remove_session(paths)
    return True


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


def own_sessions() -> Iterator[SessionPaths]:
    """Sessions of the calling user on this machine, dead ones included; names of others are skipped."""
    prefix = f"tq-{os.getuid()}-"
    for entry in sorted(os.listdir(SHM_DIRECTORY)):
        if not entry.startswith(prefix) or entry.endswith(SEGMENT_ENDINGS):
            continue
        paths = SessionPaths(entry[len(prefix) :], os.getuid())
        if os.path.isdir(paths.directory) and owned_by_us(paths.directory):
            yield paths


def remove_dead_sessions(*, except_name: str | None = None) -> list[str]:
    """Removes this user's sessions that no process is attached to, and what half-done creations and removals left.

    Args:
        except_name: a session that is about to be joined: not removed.

    Returns:
        Names of the removed sessions.
    """
    removed = []
    for paths in own_sessions():
        if paths.name != except_name and remove_if_dead(paths):
            removed.append(paths.name)
    _remove_temporary_directories()
    _remove_orphaned_segments()
    return removed


def _remove_temporary_directories() -> None:
    uid = os.getuid()
    for entry in os.listdir(SHM_DIRECTORY):
        path = f"{SHM_DIRECTORY}/{entry}"
        if entry.startswith(f".tq-gone-{uid}-") and owned_by_us(path):
            shutil.rmtree(path, ignore_errors=True)
        elif entry.startswith(f".tq-new-{uid}-") and owned_by_us(path):
            # It lives for microseconds under this name; age tells one that is being made from a leftover.
            with contextlib.suppress(FileNotFoundError):
                if time.time() - os.stat(path).st_mtime > _TEMPORARY_AGE_S:
                    shutil.rmtree(path, ignore_errors=True)


def _remove_orphaned_segments() -> None:
    """Segments whose directory is gone (removed by hand). The name is claimed first, so that a creation of the same
    name cannot be robbed of its new segments."""
    prefix = f"tq-{os.getuid()}-"
    for entry in os.listdir(SHM_DIRECTORY):
        if not entry.startswith(prefix) or not entry.endswith(SEGMENT_ENDINGS):
            continue
        path = f"{SHM_DIRECTORY}/{entry}"
        paths = SessionPaths(entry[len(prefix) : -len(SEGMENT_ENDINGS[0])], os.getuid())
        if os.path.isdir(path) or os.path.exists(paths.directory) or not owned_by_us(path):
            continue
        lock = claim_directory(paths)
        if lock is not None:
            remove_session(paths)
            lock.close()
