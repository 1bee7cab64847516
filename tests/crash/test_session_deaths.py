"""kill -9 while a session is made, ended, left or removed, and of everybody at once: nothing stays behind for good, the
name can be used again, and no committed row of a session that lives, or is taken over, is lost."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import transferqueue as tq
from tests.crash import session_victims
from tests.support.nursery import Child, Nursery
from tests.support.sessions import left_behind, wait_for, wait_until_gone
from tests.support.versioned_rows import versions_of
from transferqueue.cli import main
from transferqueue.storage.cleaning import remove_dead_sessions
from transferqueue.storage.names import new_session_name

pytestmark = pytest.mark.timeout(120)


def got_through(child: Child) -> bool:
    """False when it was killed before it could say so."""
    try:
        assert child.receive() == "through"
        return True
    except EOFError:
        assert child.wait() == -9
        return False


def forget_temporary(pid: int) -> None:
    """A directory that was being made lies under a temporary name for microseconds; what is older goes."""
    for entry in os.listdir("/dev/shm"):
        if entry.startswith((f".tq-new-{os.getuid()}-{pid}-", f".tq-gone-{os.getuid()}-{pid}-")):
            os.utime(f"/dev/shm/{entry}", times=(time.time() - 120, time.time() - 120))
    remove_dead_sessions()
    wait_for(
        lambda: not [entry for entry in os.listdir("/dev/shm") if f"-{os.getuid()}-{pid}-" in entry],
        what="the removal of what it was making",
    )


def usable(nursery: Nursery, name: str, creator: bool) -> None:
    """A process creates (or adopts) the session, stores a row, ends it; nothing stays."""
    child = nursery.start(session_victims.hold, name)
    assert child.receive() is creator
    child.pipe.send("go")
    assert child.wait() == 0
    assert left_behind(name) == []


@pytest.fixture(params=["shared memory", "files"])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> str | None:
    """`storage.dir`; empty at the end."""
    return None if request.param == "shared memory" else str(tmp_path)


def test_creation_at_any_step(nursery: Nursery, directory: str | None) -> None:
    name = new_session_name()
    for step in range(200):
        child = nursery.start(session_victims.create, name, step, directory)
        through = got_through(child)
        child.wait()
        if step % 2:
            remove_dead_sessions()
            wait_until_gone(name)
        else:
            usable(nursery, name, creator=True)
        forget_temporary(child.pid)
        assert directory is None or os.listdir(directory) == [], step
        if through:
            break
    assert 15 < step < 199


def members(nursery: Nursery, name: str) -> Iterator[Child]:
    while True:
        child = nursery.start(session_victims.hold, name)
        child.receive()
        yield child


def test_the_end_of_a_session_at_any_step(nursery: Nursery) -> None:
    """Another process is attached: it goes on, or is told that the session ended; it leaves, and nothing stays."""
    for step in range(200):
        name = new_session_name()
        creator = nursery.start(session_victims.end, name, step)
        assert creator.receive() == "ready"
        other = nursery.start(session_victims.join_and_read, name)
        assert other.receive() == "joined"
        creator.pipe.send("go")
        through = got_through(creator)
        other.pipe.send("read")
        answer = other.receive()
        assert answer in ("row", "ended")
        assert answer == "ended" or not through
        assert other.wait() == 0
        creator.wait()
        assert left_behind(name) == [] or (answer == "ended" and not through), step
        remove_dead_sessions()  # what the creator was removing when it died
        forget_temporary(creator.pid)
        wait_until_gone(name)
        if through:
            break
    assert 5 < step < 199


def test_the_removal_by_the_last_one_at_any_step(nursery: Nursery) -> None:
    for step in range(200):
        name = new_session_name()
        creator = nursery.start(session_victims.hold, name)
        creator.receive()
        last = nursery.start(session_victims.leave_last, name, step)
        assert last.receive() == "ready"
        creator.kill()
        creator.wait()
        last.pipe.send("go")
        through = got_through(last)
        last.wait()
        usable(nursery, name, creator=True)
        forget_temporary(last.pid)
        if through:
            break
    assert 5 < step < 199


@pytest.mark.alone
def test_the_removal_of_a_dead_session_at_any_step(nursery: Nursery, directory: str | None) -> None:
    for step in range(200):
        name = new_session_name()
        creator = nursery.start(session_victims.hold, name, directory)
        creator.receive()
        creator.kill()
        creator.wait()
        cleaner = nursery.start(session_victims.clean, step)
        through = got_through(cleaner)
        cleaner.wait()
        remove_dead_sessions()
        forget_temporary(cleaner.pid)
        assert left_behind(name) == []
        assert directory is None or os.listdir(directory) == [], step
        if through:
            break
    assert 5 < step < 199


@pytest.mark.alone
def test_everybody_killed_and_the_session_taken_over_with_every_row(nursery: Nursery) -> None:
    name = new_session_name()
    joined = members(nursery, name)
    children = [next(joined) for _ in range(4)]
    for child in children:
        child.kill()
    assert [child.wait() for child in children] == [-9] * 4
    with tq.init(session=name) as session:
        assert session.creator
        keys = [f"k{child.pid}" for child in children]
        assert sorted(session.client.kv_list("held")["held"]) == sorted(keys)
        found = session.client.kv_batch_get(keys, "held")
        assert versions_of(found) == [(child.pid, 1) for child in children]
        session.client._store.reap()
        assert [client.pid for client in session.client.stats().clients] == [os.getpid()]
    assert left_behind(name) == []


@pytest.mark.alone
def test_everybody_killed_and_the_session_removed_by_another_init(nursery: Nursery) -> None:
    name = new_session_name()
    joined = members(nursery, name)
    children = [next(joined) for _ in range(3)]
    for child in children:
        child.kill()
        child.wait()
    with tq.init(**{"storage.size": "8MiB"}):
        assert left_behind(name) == []


@pytest.mark.alone
def test_everybody_killed_and_the_session_removed_by_tq_clean(
    nursery: Nursery, directory: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    name = new_session_name()
    children = [nursery.start(session_victims.hold, name, directory) for _ in range(3)]
    for child in children:
        child.receive()
    assert main(["clean"]) == 0
    assert left_behind(name) != [], "it is in use"
    for child in children:
        child.kill()
        child.wait()
    assert main(["clean"]) == 0
    assert name in capsys.readouterr().out
    assert left_behind(name) == []
    assert directory is None or os.listdir(directory) == []


def test_the_killed_creators_rows_and_service_stay_with_the_others(nursery: Nursery) -> None:
    name = new_session_name()
    joined = members(nursery, name)
    creator, first, second = next(joined), next(joined), next(joined)
    creator.kill()
    creator.wait()
    first.kill()
    first.wait()
    session = tq.init(session=name)
    try:
        keys = [f"k{child.pid}" for child in (creator, first, second)]
        assert versions_of(session.client.kv_batch_get(keys, "held")) == [(int(key[1:]), 1) for key in keys]
    finally:
        tq.close()
    second.pipe.send("go")
    assert second.wait() == 0
    assert left_behind(name) == []
