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


@pytest.mark.timeout(90)
def test_a_keeper_holds_a_session_for_an_agent_that_comes_back(paths: SessionPaths) -> None:
    lock = session_dir.claim_directory(paths)
    assert lock is not None
    agent = SessionLock(paths.agent_lock, create=True)
    assert agent.try_exclusive()
    assert ensure_janitor(paths.name, keep_s=2.0)
    wait_for(lambda: not _is_alone(lock), what="the keeper's hold")
    lock.close()
    agent.close()  # killed, and nobody else is attached
    time.sleep(0.5)
    assert os.path.isdir(paths.directory)
    again = SessionLock(paths.agent_lock)
    wait_for(again.try_exclusive, what="the agent's lock")
    time.sleep(2.5)
    assert os.path.isdir(paths.directory)
    assert not session_dir.remove_if_dead(paths)
    again.close()
    wait_for(lambda: not os.path.isdir(paths.directory), what="the end of the session of an agent that stayed away")
    wait_for(lambda: not janitors(paths.name), what="the end of the keeper")


def _is_alone(lock: SessionLock) -> bool:
    alone = lock.try_exclusive()
    assert lock.try_shared()
    return alone


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
