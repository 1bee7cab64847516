"""Removing what dead processes of this user left on this machine, and nothing else.

What lives is told by locks alone, never by a pid or an age where a lock can be had: a session by its lock file, a
directory that is being made by the lock file in it. Everything here may be done by several processes at once, beside
processes that create, join and leave, and may be killed at any step: what it leaves, the next one finds.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from transferqueue.errors import UntrustedFileError
from transferqueue.storage.names import SEGMENT_ENDINGS, SHM_DIRECTORY, SPILL_ENDING, SessionPaths
from transferqueue.storage.private_files import refuse_untrusted, remove_tree, user_text
from transferqueue.storage.session_dir import (
    claim_directory,
    directories_elsewhere,
    is_in_use,
    owned_by_us,
    remove_if_dead,
    remove_session,
)
from transferqueue.storage.session_lock import SessionLock
from transferqueue.storage.spill_file import remove_leftover

_TEMPORARY_AGE_S = 60.0


@dataclass(frozen=True)
class Removed:
    """Something that went (or would go): ``session run-1`` or a path, and what memory or disk it took."""

    what: str
    nbytes: int
    session: str | None = None


@dataclass(frozen=True)
class Left:
    """Something that stays, and why."""

    what: str
    why: str


@dataclass
class Cleaned:
    """What `clean` did; with ``dry_run``, what it would do."""

    removed: list[Removed] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)


def clean(*, except_name: str | None = None, dry_run: bool = False, directories: Iterable[str] = ()) -> Cleaned:
    """Removes this user's sessions that no process is attached to, and what half-done creations and removals left.

    Args:
        except_name: a session that is about to be joined: not removed.
        dry_run: removes nothing, and says what it would.
        directories: where files of sessions lie, too (`storage.dir`, `spill.dir`): of sessions that are gone, they go.
            Where a session's own directory still stands, it says where its files are, and this is not needed.
    """
    done = Cleaned()
    for paths in own_sessions(done.left):
        if paths.name != except_name:
            _clean_session(paths, done, dry_run)
    _clean_temporary(done, dry_run)
    _clean_orphans(SHM_DIRECTORY, done, dry_run, SEGMENT_ENDINGS)
    for directory in directories:
        _clean_orphans(os.path.abspath(directory), done, dry_run, FILE_ENDINGS)
    return done


# Files of a session outside of shared memory.
FILE_ENDINGS = (SEGMENT_ENDINGS[-1], SPILL_ENDING)


def remove_dead_sessions(*, except_name: str | None = None) -> list[str]:
    """`clean`; names of the removed sessions."""
    return [removed.session for removed in clean(except_name=except_name).removed if removed.session is not None]


def own_sessions(left: list[Left] | None = None) -> Iterator[SessionPaths]:
    """Sessions of the calling user on this machine, dead ones included. What others hold of our names is skipped with a
    warning, and added to `left`."""
    prefix = f"tq-{os.getuid()}-"
    for entry in sorted(os.listdir(SHM_DIRECTORY)):
        if not entry.startswith(prefix) or entry.endswith(SEGMENT_ENDINGS):
            continue
        paths = SessionPaths(entry[len(prefix) :], os.getuid())
        if owned_by_us(paths.directory):
            if os.path.isdir(paths.directory) and not os.path.islink(paths.directory):
                yield paths
        elif left is not None:
            left.extend(_foreign(paths.directory))


def _clean_session(paths: SessionPaths, done: Cleaned, dry_run: bool) -> None:
    nbytes = _nbytes(paths)
    try:
        refuse_untrusted(paths.lock)
    except UntrustedFileError as error:  # nobody can say who is alive
        done.left.append(Left(f"session {paths.name}", str(error)))
        return
    if is_in_use(paths):
        done.left.append(Left(f"session {paths.name}", "in use"))
    elif dry_run or remove_if_dead(paths):
        done.removed.append(Removed(f"session {paths.name}", nbytes, paths.name))
    elif os.path.lexists(paths.directory):
        done.left.append(Left(f"session {paths.name}", "somebody else has just taken it up, or is removing it"))


def _clean_temporary(done: Cleaned, dry_run: bool) -> None:
    uid = os.getuid()
    for entry in sorted(os.listdir(SHM_DIRECTORY)):
        path = f"{SHM_DIRECTORY}/{entry}"
        gone, new = entry.startswith(f".tq-gone-{uid}-"), entry.startswith(f".tq-new-{uid}-")
        if not gone and not new:
            continue
        if not owned_by_us(path):
            done.left.extend(_foreign(path))
            continue
        nbytes = _tree_nbytes(path)
        with contextlib.ExitStack() as stack:
            if new and not _is_abandoned(path, stack):
                done.left.append(Left(path, "a session is being made"))
                continue
            if not dry_run:
                # With its lock held, so that a maker that comes late finds it taken and starts anew.
                remove_tree(path)
            done.removed.append(Removed(path, nbytes))


def _is_abandoned(path: str, stack: contextlib.ExitStack) -> bool:
    try:
        lock = SessionLock(f"{path}/session.lock")
    except UntrustedFileError:
        return False
    except OSError:
        # Made microseconds ago and without its lock yet, unless its maker died just there.
        try:
            return time.time() - os.stat(path).st_mtime > _TEMPORARY_AGE_S
        except FileNotFoundError:
            return False
    stack.callback(lock.close)
    return lock.try_exclusive()


def _clean_orphans(directory: str, done: Cleaned, dry_run: bool, endings: tuple[str, ...]) -> None:
    """Segments and files whose session's directory is gone (removed by hand). The name is claimed first, so that a
    creation of the same name cannot be robbed of its new ones."""
    prefix = f"tq-{os.getuid()}-"
    for entry in sorted(os.listdir(directory)):
        ending = next((ending for ending in endings if entry.endswith(ending)), None)
        if not entry.startswith(prefix) or ending is None:
            continue
        path = f"{directory}/{entry}"
        paths = SessionPaths(entry[len(prefix) : -len(ending)], os.getuid())
        if not owned_by_us(path):
            done.left.extend(_foreign(path))
        elif os.path.lexists(paths.directory):
            if directory != SHM_DIRECTORY and not _belongs(path, paths):
                done.left.append(Left(path, f"there is a session {paths.name}, which has its files elsewhere"))
        elif os.path.isdir(path):
            done.left.append(Left(path, "a directory"))
        elif directory != SHM_DIRECTORY:
            # Its own lock says whether somebody has it open, in another container, too.
            nbytes = _file_nbytes(path)
            if remove_leftover(path, payload=ending != SPILL_ENDING, dry_run=dry_run):
                done.removed.append(Removed(path, nbytes))
            else:
                done.left.append(Left(path, "in use (maybe in another container), or no file of ours"))
        elif pids := _mapped_by(path):
            done.left.append(Left(path, f"mapped by process {', '.join(map(str, pids))}"))
        elif os.path.lexists(path):  # else a removal that was under way, segments first, has come to its end
            nbytes = _file_nbytes(path)
            if dry_run or _remove_orphan(path, paths):
                done.removed.append(Removed(path, nbytes))


def _remove_orphan(path: str, paths: SessionPaths) -> bool:
    lock = claim_directory(paths)
    if lock is None:
        return False
    try:
        os.unlink(path)
        return True
    except FileNotFoundError:
        return False
    finally:
        remove_session(paths, segments=False)
        lock.close()


def _belongs(path: str, paths: SessionPaths) -> bool:
    return path in _files_elsewhere(paths)


def _files_elsewhere(paths: SessionPaths) -> list[str]:
    payload, spill = directories_elsewhere(paths)
    found = [] if payload is None else [paths.payload_file(payload)]
    return found if spill is None else [*found, paths.spill_file(spill)]


def _mapped_by(path: str) -> list[int]:
    """Processes that can be seen from here and have the file mapped: a session lives on without its directory."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{entry}/maps", encoding="utf-8", errors="replace") as maps:
                if any(line.rstrip("\n").endswith(path) for line in maps):
                    found.append(int(entry))
    return found


def _foreign(path: str) -> list[Left]:
    try:
        uid = os.stat(path, follow_symlinks=False).st_uid
    except FileNotFoundError:
        return []
    return [Left(path, f"belongs to {user_text(uid)}")]


def _nbytes(paths: SessionPaths) -> int:
    segments = (SHM_DIRECTORY + paths.segment(ending) for ending in SEGMENT_ENDINGS)
    return _tree_nbytes(paths.directory) + sum(map(_file_nbytes, (*segments, *_files_elsewhere(paths))))


def _file_nbytes(path: str) -> int:
    """What it takes, which for a sparse file is less than its size; 0 for what is gone."""
    try:
        found = os.stat(path, follow_symlinks=False)
    except OSError:
        return 0
    return 0 if stat.S_ISDIR(found.st_mode) else found.st_blocks * 512


def _tree_nbytes(path: str) -> int:
    return sum(_file_nbytes(f"{folder}/{name}") for folder, _, names in os.walk(path) for name in names)
