"""The segments of a session: control, block table and payload in shared memory, the spill file where it has one."""

from __future__ import annotations

import os
from dataclasses import dataclass

import posix_ipc

from transferqueue.errors import CorruptSegmentError
from transferqueue.logs import get_logger
from transferqueue.storage.names import SEGMENT_ENDINGS, SHM_DIRECTORY, SessionPaths
from transferqueue.storage.spill_file import create_spill_file, open_spill_file, remove_spill_file

_log = get_logger("storage")
_MODE = 0o600
_CONTROL, _TABLE, _PAYLOAD = SEGMENT_ENDINGS


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


def _posix_segment(name: str, *, create: bool) -> int:
    memory = posix_ipc.SharedMemory(name, posix_ipc.O_CREX if create else 0, mode=_MODE)
    return int(memory.fd)


def create_segments(
    paths: SessionPaths, payload_directory: str | None, spill_directory: str | None = None
) -> SegmentDescriptors:
    """Creates empty segments under this session's names.

    The caller owns the session's name, so whatever stands under the segment names is a leftover and goes. Of the spill
    file see `create_spill_file`.

    Raises:
        OSError: the system refuses; what was made so far is removed.
    """
    unlink_segments(paths, payload_directory)
    found = SegmentDescriptors()
    try:
        if spill_directory is not None:
            found.spill = create_spill_file(paths, spill_directory)
        found.control = _posix_segment(paths.segment(_CONTROL), create=True)
        found.table = _posix_segment(paths.segment(_TABLE), create=True)
        if payload_directory is None:
            found.payload = _posix_segment(paths.segment(_PAYLOAD), create=True)
        else:
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
            found.payload = os.open(paths.payload_file(payload_directory), flags, _MODE)
    except BaseException as error:
        found.close()
        unlink_segments(paths, payload_directory, spill_directory)
        if isinstance(error, (posix_ipc.Error, FileExistsError)):
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
        CorruptSegmentError: a segment was removed by someone else, or belongs to another user; names it.
    """
    found = SegmentDescriptors()
    try:
        for attribute, ending in (("control", _CONTROL), ("table", _TABLE), ("payload", _PAYLOAD)):
            if ending == _PAYLOAD and payload_directory is not None:
                where = paths.payload_file(payload_directory)
                fd = os.open(where, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            else:
                where = SHM_DIRECTORY + paths.segment(ending)
                fd = _posix_segment(paths.segment(ending), create=False)
            setattr(found, attribute, fd)
            if os.fstat(fd).st_uid != paths.uid:
                raise CorruptSegmentError(
                    f"segment {where} of session {paths.name!r} belongs to another user (uid {os.fstat(fd).st_uid}); "
                    "it is not used",
                    path=where,
                )
        if spill_directory is not None:
            found.spill = open_spill_file(paths, spill_directory)
    except (posix_ipc.Error, FileNotFoundError) as error:
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
    """Removes the names; mappings stay valid. Names that are gone already are no error."""
    for ending in SEGMENT_ENDINGS:
        try:
            posix_ipc.unlink_shared_memory(paths.segment(ending))
        except posix_ipc.ExistentialError:
            pass
        except posix_ipc.PermissionsError:
            _warn_of_foreign(SHM_DIRECTORY + paths.segment(ending))
    if payload_directory is not None:
        try:
            os.unlink(paths.payload_file(payload_directory))
        except FileNotFoundError:
            pass
        except PermissionError:
            _warn_of_foreign(paths.payload_file(payload_directory))
    if spill_directory is not None:
        remove_spill_file(paths, spill_directory)


def _warn_of_foreign(path: str) -> None:
    # In a sticky directory only its owner may remove it; that must not keep us from removing what is ours.
    _log.warning("%s cannot be removed (another user's?); it is left alone", path)
