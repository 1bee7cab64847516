"""Which other sessions' metadata means rows of this one: those of the checkpoint that was loaded into it.

A checkpoint restores rows under their indexes, so metadata made before it was saved stays valid, also in a session of
another name. Kept in a file of the session's directory, for all its processes; read only when metadata names another
session.
"""

from __future__ import annotations

import json

import msgspec

from transferqueue.errors import CorruptSegmentError
from transferqueue.storage.names import SessionPaths
from transferqueue.storage.private_files import read_private, write_private


def write_loaded_sessions(paths: SessionPaths, names: tuple[str, ...]) -> None:
    """Replaces what was there, in one step."""
    write_private(paths.loaded_sessions, json.dumps([name for name in dict.fromkeys(names) if name != paths.name]))


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
