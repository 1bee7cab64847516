"""kill -9 at every named point of a move to the spill file, and of a put that makes room by one: every row is there to
the byte, in memory or on disk, and neither region loses a byte."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

import transferqueue as tq
from tests.crash import victims
from tests.crash.deeds import EIGHT
from tests.crash.world import World
from tests.support.nursery import Nursery
from tests.support.quiet import without_service
from tests.support.sessions import embedded
from tests.support.versioned_rows import rows
from transferqueue.storage.cleaning import remove_dead_sessions

pytestmark = pytest.mark.timeout(120)

MIB = 1 << 20
BEFORE = [
    *("write_gate.entered", "index.reserve.before_commit", "index.before_commit", "index.after_commit"),
    *("spill.before_copy", "lease.before_store", "lease.before_recheck", "spill.midway", "spill.after_copy"),
    *("write_gate.entered:1", "index.spill.before_commit", "index.before_commit:1"),
]
AFTER = [
    *("index.after_commit:1", "spill.after_commit", "retire.after_commit", "retire.before_scan", "retire.after_word"),
    *("write_gate.entered:2", "index.free.before_commit", "index.before_commit:2", "index.after_commit:2"),
]


@pytest.fixture(scope="module")
def world(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("spill")
    options = {"storage.size": 16 * MIB, "spill.dir": str(directory), "spill.size": 64 * MIB}
    with embedded(**options) as session, without_service(session):
        found = World(session, nursery)
        found.put_plain(EIGHT)
        assert (
            found.client._store.spill(MIB) > 0
        )  # from here on the file is backed, and a move takes three transactions
        yield found
        found.nothing_is_lost()
    assert list(directory.iterdir()) == []


def start_over(world: World) -> None:
    world.empty()
    for number in EIGHT:
        world.put_plain([number])
    world.put_keyed(EIGHT)


def spilled_bytes(world: World) -> int:
    return world.client.stats().spilled_bytes


@pytest.mark.parametrize(
    ("point", "moved"), [(point, False) for point in BEFORE] + [(point, True) for point in AFTER], ids=BEFORE + AFTER
)
def test_death_in_a_move(world: World, point: str, moved: bool) -> None:
    start_over(world)
    assert spilled_bytes(world) == 0
    world.die(point, victims.spill)
    world.settle()
    assert (spilled_bytes(world) > 0) is moved
    world.verify()


@pytest.mark.parametrize(
    "point", ["spill.midway", "index.spill.before_commit", "spill.after_commit", "retire.after_word"]
)
def test_death_of_a_put_that_makes_room(world: World, point: str) -> None:
    start_over(world)
    filler = world.client.put(victims.large_batch(0, 14 * MIB), partition_id="filler")
    world.die(point, victims.put_when_full, 4 * MIB)
    world.settle()
    world.verify()
    assert int(world.client.get_data(filler)["x"][-1, -1]) == 0
    assert world.client.stats("filler").rows["total"] == 14
    world.client.clear_partition("filler")
    world.settle()


def moves_and_rewrites(pipe: Connection, session: str, seed: int) -> None:
    """Until it is killed."""
    tq.init(session=session)
    client = tq.get_client()
    chooser = random.Random(seed)
    pipe.send("begins")
    while True:
        client._store.spill(1 if chooser.random() < 0.7 else 16 * MIB)
        client.put(rows([500 + seed % 4], seed), partition_id="other")


def in_any_order(world: World, seed: int, deaths: int) -> None:
    chooser = random.Random(seed)
    start_over(world)
    world.settle()
    files = world.files()
    for number in range(deaths):
        movers = [world.nursery.start(moves_and_rewrites, world.session.name, seed + number + at) for at in range(2)]
        for mover in movers:
            assert mover.receive() == "begins"
        for _ in range(3):
            version = world.next_version()
            world.client.put(rows(EIGHT, version), metadata=world.meta_of(EIGHT))
            world.plain |= dict.fromkeys(EIGHT, version)
            time.sleep(chooser.random() * 0.02)
        for mover in movers:
            mover.kill()
            mover.wait()
        world.rounds += 1
        world.settle()
        world.verify()
        world.client.clear_partition("other")
        if number % 4 == 3:
            start_over(world)
        world.settle()
        assert world.files() == files


def test_deaths_of_movers_at_random_times(world: World) -> None:
    in_any_order(world, 7, 8)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(5))
def test_four_hundred_deaths_of_movers(world: World, seed: int) -> None:
    in_any_order(world, 1000 * seed, 400)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_thousand_deaths_at_named_points(world: World) -> None:
    chooser = random.Random(11)
    for _ in range(1000):
        point = chooser.choice(BEFORE + AFTER)
        test_death_in_a_move(world, point, point in AFTER)


@pytest.mark.alone
def test_the_file_goes_when_everybody_was_killed(nursery: Nursery, tmp_path: Path) -> None:
    alone = nursery.start(lone_session, str(tmp_path))
    name = alone.receive()
    assert alone.wait() == -signal.SIGKILL
    assert [path.name for path in tmp_path.iterdir()] != []
    assert name in remove_dead_sessions()
    assert list(tmp_path.iterdir()) == []


def lone_session(pipe: Connection, directory: str) -> None:
    session = tq.init(**{"storage.size": 16 * MIB, "spill.dir": directory, "spill.size": 16 * MIB})
    session.client.put(rows(EIGHT, 1), partition_id="p")
    session.client._store.spill(MIB)
    pipe.send(session.name)
    os.kill(os.getpid(), signal.SIGKILL)
