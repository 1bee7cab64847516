"""The segments of a session: control, block table and payload in shared memory, the spill file where it has one."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass

import posix_ipc

from transferqueue.errors import CorruptSegmentError
from transferqueue.logs import get_logger
from transferqueue.printable import printable
from transferqueue.storage.names import SEGMENT_ENDINGS, SHM_DIRECTORY, SessionPaths
from transferqueue.storage.private_files import FILE_MODE, create_private, open_private, refuse_untrusted, user_text
from transferqueue.storage.spill_file import (
    create_spill_file,
    hold,
    open_spill_file,
    remember,
    remove_leftover,
    remove_remembered,
    remove_spill_file,
    still_names,
)

_log = get_logger("storage")
_CONTROL, _TABLE, _PAYLOAD = SEGMENT_ENDINGS
_TRIES = 20


@dataclass
class SegmentDescriptors:
    """Open file descriptors; the native core duplicates them, so they are closed once it has attached."""

    control: int = -1
    table: int = -1
    payload: int = -1
    spill: int = -1

    def close(self) -> None:
        """Idempotent."""
        for name in ("control", "table", "payload", "spill"):
            fd = getattr(self, name)
            if fd >= 0:
                setattr(self, name, -1)
                os.close(fd)


def _new_posix_segment(name: str) -> int:
    try:
        fd = int(posix_ipc.SharedMemory(name, posix_ipc.O_CREX, mode=FILE_MODE).fd)
    except OSError as error:
        if error.errno is None:  # posix_ipc says in words only which limit of descriptors was met
            raise OSError(errno.EMFILE, str(error), SHM_DIRECTORY + name) from error
        raise
    os.fchmod(fd, FILE_MODE)  # the umask may have taken bits of our own
    return fd


def _new_payload_file(paths: SessionPaths, directory: str) -> int:
    path = paths.payload_file(directory)
    for _ in range(_TRIES):
        remove_leftover(path, payload=True)
        fd = create_private(path)
        if hold(fd) and still_names(path, fd):
            remember(paths.payload_inode, fd)
            return fd
        os.close(fd)  # somebody who looks for leftovers met it before it was locked
    raise OSError(f"cannot create {path}: it is removed again and again")


def create_segments(
    paths: SessionPaths, payload_directory: str | None, spill_directory: str | None = None
) -> SegmentDescriptors:
    """Creates empty segments under this session's names.

    The caller owns the session's name, so whatever of this user stands under the segment names is a leftover and goes.
    Files elsewhere are leftovers only if nobody has them open: another container may share their directory.

    Raises:
        UntrustedFileError: a name is another user's. OSError: the system refuses. What was made so far is removed.
    """
    unlink_segments(paths, None)
    found = SegmentDescriptors()
    try:
        if spill_directory is not None:
            found.spill = create_spill_file(paths, spill_directory)
        found.control = _new_posix_segment(paths.segment(_CONTROL))
        found.table = _new_posix_segment(paths.segment(_TABLE))
        if payload_directory is None:
            found.payload = _new_posix_segment(paths.segment(_PAYLOAD))
        else:
            found.payload = _new_payload_file(paths, payload_directory)
    except BaseException as error:
        found.close()
        unlink_segments(paths, payload_directory, spill_directory)
        if isinstance(error, (posix_ipc.Error, FileExistsError)):
            for path in segment_paths(paths, payload_directory):
                refuse_untrusted(path)  # says whose it is
            raise OSError(
                f"cannot create the segments of session {paths.name!r} ({error}): look at {SHM_DIRECTORY}"
                f"{paths.segment('.*')}; where another user's file has such a name, choose another session name"
            ) from error
        raise
    return found


def open_segments(
    paths: SessionPaths, payload_directory: str | None, spill_directory: str | None = None
) -> SegmentDescriptors:
    """Opens the segments of a session that exists.

    Raises:
        CorruptSegmentError: a segment was removed by someone else; names it.
        UntrustedFileError: one is not this user's alone.
    """
    found = SegmentDescriptors()
    try:
        for attribute, where in zip(
            ("control", "table", "payload"), segment_paths(paths, payload_directory), strict=True
        ):
            # As shm_open does it, with a look at whose it is.
            setattr(found, attribute, open_private(where, os.O_RDWR))
        if payload_directory is not None:
            hold(found.payload)
        if spill_directory is not None:
            found.spill = open_spill_file(paths, spill_directory)
    except FileNotFoundError as error:
        found.close()
        raise CorruptSegmentError(
            f"session {paths.name!r} exists but its segment {where} is missing or cannot be opened ({error}): it was "
            "removed from outside. Processes that are attached go on; end the session and start a new one",
            path=where,
        ) from error
    except BaseException:
        found.close()
        raise
    return found


def unlink_segments(paths: SessionPaths, payload_directory: str | None, spill_directory: str | None = None) -> None:
    """Removes the names that are this user's; mappings stay valid. Names that are gone already are no error."""
    for ending in SEGMENT_ENDINGS:
        if _may_go(SHM_DIRECTORY + paths.segment(ending)):
            try:
                posix_ipc.unlink_shared_memory(paths.segment(ending))
            except posix_ipc.ExistentialError:
                pass
            except posix_ipc.PermissionsError:
                _warn_of_foreign(SHM_DIRECTORY + paths.segment(ending), "this process may not")
    if payload_directory is not None:
        remove_remembered(paths.payload_file(payload_directory), paths.payload_inode, payload=True)
    if spill_directory is not None:
        remove_spill_file(paths, spill_directory)


def segment_paths(paths: SessionPaths, payload_directory: str | None) -> list[str]:
    """Where control, table and payload lie."""
    found = [SHM_DIRECTORY + paths.segment(ending) for ending in SEGMENT_ENDINGS]
    if payload_directory is not None:
        found[-1] = paths.payload_file(payload_directory)
    return found


def _may_go(path: str) -> bool:
    # Root may remove anything, and no directory need be sticky: so the owner is asked, not the system.
    try:
        found = os.stat(path, follow_symlinks=False)
    except OSError:
        return False
    if found.st_uid == os.geteuid() and not stat.S_ISDIR(found.st_mode):
        return True
    _warn_of_foreign(path, "a directory" if stat.S_ISDIR(found.st_mode) else f"it belongs to {user_text(found.st_uid)}")
    return False


def _warn_of_foreign(path: str, why: str) -> None:
    # That must not keep us from removing what is ours.
    _log.warning("%s cannot be removed (%s); it is left alone", printable(path), why)
