"""The origin of a session is for people: written whole, and what cannot be read says nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from transferqueue.storage import session_dir
from transferqueue.storage.names import SessionPaths, new_session_name
from transferqueue.storage.origin import Origin, read_origin, write_origin


def test_it_comes_back_and_an_unreadable_one_is_empty() -> None:
    paths = SessionPaths.of(new_session_name())
    assert read_origin(paths) == Origin()
    lock = session_dir.claim_directory(paths)
    assert lock is not None
    try:
        write_origin(paths, {"storage.size": "default"}, adopter_pid=7)
        assert read_origin(paths) == Origin({"storage.size": "default"}, 7)
        for text in ("", "{", "[]", "null", '{"sources": 1, "adopter_pid": 2}', '{"sources": {}}'):
            Path(paths.origin).write_text(text)
            assert read_origin(paths) == Origin()
    finally:
        session_dir.remove_session(paths)
        lock.close()
    with pytest.raises(FileNotFoundError):
        write_origin(paths, {})
