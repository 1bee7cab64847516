"""Which other sessions' metadata means rows of this one: those of the checkpoint that was loaded into it.

A checkpoint restores rows under their indexes, so metadata made before it was saved stays valid, also in a session of
another name. Kept in a file of the session's directory, for all its processes; read only when metadata names another
session.
"""

from __future__ import annotations

import contextlib
import errno
import json
from collections.abc import Iterator

import msgspec

from transferqueue.errors import CorruptSegmentError, StorageFullError
from transferqueue.storage.creation import free_bytes
from transferqueue.storage.names import SHM_DIRECTORY, SessionPaths
from transferqueue.storage.private_files import read_private, replaced_private


@contextlib.contextmanager
def noting_loaded_sessions(paths: SessionPaths, names: tuple[str, ...]) -> Iterator[None]:
    """Around the step that puts what was loaded in the place of what was there: replaces the file behind it, at once.

    Raises:
        StorageFullError: the file system has no room for it; the body did not run.
    """
    text = json.dumps([name for name in dict.fromkeys(names) if name != paths.name])
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(replaced_private(paths.loaded_sessions, text))
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            free, total = free_bytes(SHM_DIRECTORY)
            raise StorageFullError(
                f"{SHM_DIRECTORY} has no room for the {len(text)} bytes that say which sessions were loaded. Free some",
                resource="session",
                wanted_bytes=len(text),
                used_bytes=total - free,
                leased_bytes=0,
                free_bytes=free,
                total_bytes=total,
            ) from error
        yield


def read_loaded_sessions(paths: SessionPaths) -> tuple[str, ...]:
    """Names, the one that was saved first; none when nothing was loaded.

    Raises:
        CorruptSegmentError: the file is damaged.
    """
    try:
        return msgspec.json.decode(read_private(paths.loaded_sessions), type=tuple[str, ...])
    except FileNotFoundError:
        return ()
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise CorruptSegmentError(
            f"{paths.loaded_sessions} is no list of sessions: {error}", path=paths.loaded_sessions
        ) from error
