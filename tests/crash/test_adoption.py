"""A session whose processes are all dead is taken over with every row, by one process, whoever dies at it; a service
that was killed is replaced, and nobody needs it meanwhile."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

import transferqueue as tq
from tests.crash import adopters
from tests.support.nursery import Child, Nursery
from tests.support.sessions import left_behind, wait_for, wait_until_gone
from tests.support.space import is_settled
from tests.support.versioned_rows import rows, versions_of
from transferqueue.storage.cleaning import remove_dead_sessions
from transferqueue.storage.names import new_session_name

pytestmark = pytest.mark.timeout(120)
ROWS = 12
EVERY_ROW = [(number, 1) for number in range(ROWS)]


def dead_session(nursery: Nursery) -> str:
    name = new_session_name()
    child = nursery.start(adopters.fill, name, ROWS)
    assert child.receive() == "filled"
    end(child)
    return name


def end(child: Child) -> None:
    child.kill()
    assert child.wait() == -signal.SIGKILL


def died(child: Child) -> bool:
    """Whether it was killed before it could say anything; else it is killed now."""
    try:
        child.receive()
    except EOFError:
        assert child.wait() == -signal.SIGKILL
        return True
    end(child)
    return False


def everything_is_there(name: str, *, creator: bool) -> None:
    """This process takes the session over, or joins it: every row, and of the dead nothing."""
    session = tq.init(session=name)
    try:
        assert session.creator is creator
        store = session.client._store
        keys = [f"k{number}" for number in range(ROWS)]
        assert versions_of(session.client.kv_batch_get(keys, "kept")) == EVERY_ROW
        assert list(session.client.kv_list("kept")["kept"]) == keys
        if creator:
            wait_for(lambda: is_settled(store), what="the return of what the dead held")
            leases = os.listdir(Path(session.attachment.paths.directory) / "leases")
            assert len(leases) == 1
        store.check()
    finally:
        session.close()


@pytest.mark.alone
def test_adopters_that_die_at_it(nursery: Nursery) -> None:
    """One after the other, and then one that gets through."""
    name = dead_session(nursery)
    points = [
        *("index.slot_locked", "index.slot_locked:1", "lease_file.locked", "index.reading", "reap.before_remove"),
        *("index.before_commit", "index.after_commit", "retire.before_scan", "retire.after_word"),
        *("index.free.before_commit", "write_gate.entered:1"),
    ]
    deaths = sum(died(nursery.start(adopters.adopt, name, point)) for point in points)
    assert deaths >= len(points) - 3, "some find nothing left to do"
    everything_is_there(name, creator=True)
    assert left_behind(name) == []


@pytest.mark.alone
def test_adopters_that_die_at_any_step(nursery: Nursery) -> None:
    name = dead_session(nursery)
    step = 0
    while died(nursery.start(adopters.adopt_at_step, name, step)):
        step += 1
        assert step < 200
    assert step > 8
    everything_is_there(name, creator=True)
    assert left_behind(name) == []


@pytest.mark.alone
def test_four_at_once_and_one_is_the_creator(nursery: Nursery) -> None:
    name = dead_session(nursery)
    children = [nursery.start(adopters.adopt, name, None) for _ in range(4)]
    assert sum(child.receive() for child in children) == 1
    for child in children[:-1]:
        end(child)
    everything_is_there(name, creator=False)
    end(children[-1])
    remove_dead_sessions()
    assert left_behind(name) == []


@pytest.mark.alone
def test_without_adopting_it_starts_empty(nursery: Nursery) -> None:
    name = dead_session(nursery)
    session = tq.init(session=name, adopt=False, **{"storage.size": "8MiB"})
    try:
        assert session.creator
        assert session.client.get_partition_list() == []
        assert session.client.stats().used_bytes == 0
        session.client._store.check()
    finally:
        session.close()
    assert left_behind(name) == []


def test_a_service_that_is_killed_and_started_again(nursery: Nursery) -> None:
    """Calls of clients take no longer without one; of two that are started at once one serves, the other says so."""
    name = new_session_name()
    service = nursery.start(adopters.serve, name, None)
    assert service.receive().startswith(f"serving session {name}")
    session = tq.init(session=name)
    session.service.stop()  # this process takes no service over
    try:
        client = session.client
        meta = client.put(rows(range(8), 1), partition_id="p")
        end(service)
        times_s = []
        for version in range(2, 40):
            began_s = time.perf_counter()
            client.put(rows(range(8), version), metadata=meta)
            assert versions_of(client.get_data(meta)) == [(number, version) for number in range(8)]
            times_s.append(time.perf_counter() - began_s)
        print(
            f"a put and a get without service: median {sorted(times_s)[19] * 1e3:.2f}, max {max(times_s) * 1e3:.2f} ms"
        )
        both = [nursery.start(adopters.serve, name, None) for _ in range(2)]
        said = [child.receive() for child in both]
        assert sorted(line.split()[0] for line in said) == ["serving", "tq"], said
        assert next(line for line in said if line.startswith("tq")).endswith("has a storage service already")
        loser = both[[line.startswith("tq") for line in said].index(True)]
        winner = both[[line.startswith("tq") for line in said].index(False)]
        assert loser.wait() == 1
        # It adopts: what the dead service held (a lease file) is given back by the new one, without any of us.
        wait_for(lambda: len(os.listdir(f"{session.attachment.paths.directory}/leases")) == 2, what="the reaping")
        assert versions_of(client.get_data(meta)) == [(number, 39) for number in range(8)]
        end(winner)
        client._store.reap()
        client._store.check()
    finally:
        tq.close()
    remove_dead_sessions()
    wait_until_gone(name)
