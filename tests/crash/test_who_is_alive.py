"""Dead or alive is what the lock says: of zombies, of processes that execute another program, of children that keep
what they inherited."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import transferqueue as tq
from tests.crash import alive_roles as roles
from tests.crash.world import World
from tests.support.sessions import wait_for

pytestmark = pytest.mark.timeout(120)
EIGHT = list(range(8))


@pytest.fixture
def meta(world: World) -> Iterator[tq.BatchMeta]:
    world.empty()
    yield world.put_plain(EIGHT)
    world.settle()
    world.verify()


def alive(world: World) -> list[int]:
    """Clients but this process that count as alive."""
    return [
        client["pid"] for client in world.client._store.clients() if client["alive"] and client["pid"] != os.getpid()
    ]


def holds_nothing(world: World, meta: tq.BatchMeta) -> None:
    """Its claim, its reservation and its view are gone, though there was no housekeeping before; its rows are there."""
    claimed = world.client.claim("t", "plain", fields="x", batch_size=8, lease_s=60)
    assert claimed.meta.size == 8
    world.client.nack(claimed)
    world.verify()
    world.client.clear_samples(meta)
    world.forget_plain(EIGHT)
    world.settle()


def test_a_zombie_is_dead(world: World, meta: tq.BatchMeta) -> None:
    parent = world.nursery.start(roles.hold_and_become_a_zombie, world.session.name, meta)
    assert parent.receive() == "holding"
    assert len(alive(world)) == 1
    parent.pipe.send("kill it")
    zombie = parent.receive()
    assert Path(f"/proc/{zombie}").exists()
    assert alive(world) == []
    holds_nothing(world, meta)
    assert Path(f"/proc/{zombie}").exists()
    parent.pipe.send("wait for it")
    assert parent.receive() == "waited for"
    assert parent.wait() == 0


def test_a_process_that_executes_another_program_is_dead(world: World, meta: tq.BatchMeta) -> None:
    """Pid and start time are as they were."""
    child = world.nursery.start(roles.hold_and_execute, world.session.name, meta)
    assert child.receive() == "holding"
    assert alive(world) == [child.pid]
    child.pipe.send("execute")
    wait_for(lambda: alive(world) == [], what="the end of what it was")
    assert Path(f"/proc/{child.pid}").exists()
    holds_nothing(world, meta)
    child.kill()
    assert child.wait() == -signal.SIGKILL


def test_a_child_that_goes_on_is_alive_and_its_parent_dead(world: World, meta: tq.BatchMeta) -> None:
    parent = world.nursery.start(roles.hold_and_fork, world.session.name, meta, False)
    child = parent.receive()
    parent.kill()
    wait_for(lambda: alive(world) == [child], what="the death of the parent")
    # The claim and the reservation were the parent's; the view is the child's, too.
    claimed = world.client.claim("t", "plain", fields="x", batch_size=8, lease_s=60)
    assert claimed.meta.size == 8
    world.client.nack(claimed)
    expected = [(number, world.plain[number]) for number in EIGHT]
    world.client.clear_samples(meta)
    world.forget_plain(EIGHT)
    world.client._store.reap()
    world.client._store.reclaim()
    stats = world.client._store.stats()
    assert stats["pending_bytes"] == 0
    assert stats["retired_bytes"] > 0
    world.put_plain(range(100, 164))  # into whatever room there is
    os.kill(child, signal.SIGSTOP)  # stopped is alive
    assert alive(world) == [child]
    os.kill(child, signal.SIGCONT)
    parent.pipe.send("look")
    assert parent.receive() == expected
    assert parent.wait() == -signal.SIGKILL


def test_a_child_that_executes_another_program_keeps_nothing_alive(world: World, meta: tq.BatchMeta) -> None:
    parent = world.nursery.start(roles.hold_and_fork, world.session.name, meta, True)
    child = parent.receive()
    parent.kill()
    assert parent.wait() == -signal.SIGKILL
    assert Path(f"/proc/{child}").exists()
    assert alive(world) == []
    holds_nothing(world, meta)
    os.kill(child, signal.SIGKILL)
    until_s = time.monotonic() + 10
    while Path(f"/proc/{child}").exists() and time.monotonic() < until_s:
        time.sleep(0.01)
