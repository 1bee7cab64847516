"""The janitor removes a session once nobody holds it, and goes away."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.sessions import janitors, wait_for
from transferqueue.storage import session_dir
from transferqueue.storage.janitor import ensure_janitor
from transferqueue.storage.names import SessionPaths, new_session_name
from transferqueue.storage.session_lock import SessionLock


@pytest.fixture
def paths() -> Iterator[SessionPaths]:
    found = SessionPaths.of(new_session_name())
    yield found
    session_dir.remove_session(found)


@pytest.mark.timeout(90)
def test_one_janitor_waits_outside_our_group_and_removes_what_the_killed_left(paths: SessionPaths) -> None:
    lock = session_dir.claim_directory(paths)
    assert lock is not None
    assert ensure_janitor(paths.name)
    assert not ensure_janitor(paths.name)
    (janitor,) = janitors(paths.name)
    assert os.getpgid(janitor) != os.getpgid(0)
    time.sleep(0.2)
    assert os.path.isdir(paths.directory)
    lock.close()  # what the kernel does when the last process is killed
    wait_for(lambda: not os.path.isdir(paths.directory))
    wait_for(lambda: not janitors(paths.name))


@pytest.mark.timeout(90)
def test_a_janitor_of_a_session_that_ended_leaves_its_successor_alone(paths: SessionPaths) -> None:
    first = session_dir.claim_directory(paths)
    assert first is not None
    assert ensure_janitor(paths.name)
    session_dir.remove_session(paths)
    second = session_dir.claim_directory(paths)
    assert second is not None
    first.close()
    wait_for(lambda: not janitors(paths.name))
    assert second.is_current()
    second.close()


def test_there_is_no_janitor_without_a_session(paths: SessionPaths) -> None:
    assert not ensure_janitor(paths.name)
    with pytest.raises(FileNotFoundError):
        SessionLock(paths.lock)


def test_it_imports_nothing_from_where_it_is_started(
    paths: SessionPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From /tmp, anybody's modules would come first."""
    for name in ("json", "posix_ipc", "shutil", "secrets"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'code ran')!r}, 'w')\nraise SystemExit(7)\n")
    monkeypatch.chdir(tmp_path)
    lock = session_dir.claim_directory(paths)
    assert lock is not None
    assert ensure_janitor(paths.name)
    assert not (tmp_path / "code ran").exists()
    lock.close()
    wait_for(lambda: not janitors(paths.name))
