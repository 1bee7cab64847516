"""kill -9 at every named point of every call: the rows of a put are there all or none, the rest is untouched to the
byte, and whatever the dead process held comes back.

`early` points lie before the commit that makes the change visible, `late` ones after it. ``name:2`` is the third time
that the call passes the point: a write transaction of its own each for the reservation, the publication, the freeing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from tests.crash import deeds, victims
from tests.crash.deeds import EIGHT
from tests.crash.world import World

pytestmark = pytest.mark.timeout(120)

RESERVE = ["write_gate.entered", "index.reserve.before_commit", "index.before_commit", "index.after_commit"]
FILL = ["put.after_copy", "put.before_publish"]
PUBLISH = ["write_gate.entered:1", "index.publish.before_commit", "index.before_commit:1"]
PUBLISHED = ["index.after_commit:1", "index.publish.after_commit", "put.after_commit_before_wake"]
SCAN = ["retire.after_commit", "retire.before_scan", "lease_directory.listed", "retire.after_word"]
FREE = [*SCAN, "write_gate.entered:2", "index.free.before_commit", "index.before_commit:2", "index.after_commit:2"]
# Of calls whose first write transaction is the change itself.
CHANGE = ["write_gate.entered", "index.before_commit"]
CHANGED = ["index.after_commit"]
FREE_AFTER_CHANGE = [point.replace(":2", ":1") for point in FREE]
BETWEEN_BATCHES = [f"index.clear.between_batches:{number}" for number in range(3)]
LEASE = ["get.after_resolve", "lease.before_store", "lease.before_recheck", "get.after_lease"]
DROP = ["view.before_unmap", "view.unmapped", "lease.before_release"]

Round = Callable[[World, str, bool], None]


def rounds(deed: Round, early: Sequence[str], late: Sequence[str] = ()) -> list[tuple[Round, str, bool]]:
    return [(deed, point, False) for point in early] + [(deed, point, True) for point in late]


ROUNDS = [
    *rounds(deeds.put_new, [*RESERVE, *FILL, *PUBLISH], PUBLISHED),
    *rounds(deeds.overwrite, [*RESERVE, *FILL, *PUBLISH], [*PUBLISHED, *FREE]),
    *rounds(deeds.overwrite_some, [*FILL, *PUBLISH], PUBLISHED),
    *rounds(deeds.put_keys, [*RESERVE, *FILL, *PUBLISH], PUBLISHED),
    *rounds(deeds.overwrite_keys, [*RESERVE, *FILL, *PUBLISH], [*PUBLISHED, *FREE]),
    *rounds(
        deeds.in_place,
        ["put.after_copy", "producer.before_seal", "producer.sealed", "write_gate.entered"],
        ["index.after_commit", "put.after_commit_before_wake", *FREE_AFTER_CHANGE],
    ),
    *rounds(
        deeds.in_place_kept,
        ["producer.tensor_died", "producer.before_seal", "producer.sealed", "index.before_commit"],
        ["index.after_commit", "put.after_commit_before_wake", "retire.after_word", "producer.tensor_died:2"],
    ),
    *rounds(deeds.abort, [*CHANGE, *CHANGED]),
    *rounds(deeds.abort_kept, ["producer.tensor_died", *CHANGE, *CHANGED]),
    *rounds(deeds.clear_rows, CHANGE, [*CHANGED, *FREE_AFTER_CHANGE]),
    *rounds(deeds.clear_keys, CHANGE, [*CHANGED, *FREE_AFTER_CHANGE]),
    *rounds(deeds.clear_many, CHANGE, [*CHANGED, *BETWEEN_BATCHES, "index.after_commit:1"]),
    *rounds(deeds.clear_partition, CHANGE, [*CHANGED, *BETWEEN_BATCHES[:2], "index.after_commit:1"]),
    # The blocks that it copied from are leased until it is done: freeing them is left to others.
    *rounds(
        deeds.coalesce,
        [*LEASE, *RESERVE, "put.after_copy", "copy.midway", *PUBLISH, "index.after_commit:1", *SCAN],
    ),
    # The first lease is that of the look at how much lives; here the old blocks are not leased any more when they go.
    *rounds(
        deeds.compact,
        [
            *["lease.before_store", *LEASE[:1], "lease.before_store:1", "lease.before_recheck:1", *LEASE[3:]],
            *[*RESERVE, "put.after_copy", "copy.midway", *PUBLISH, "index.after_commit:1", *FREE],
        ],
    ),
    *rounds(
        deeds.compact_full,
        [
            "put.after_copy",
            "copy.midway",
            "index.publish.before_commit",
            "retire.after_word",
            "index.free.before_commit",
        ],
    ),
    # Aside first, then to its place.
    *rounds(
        deeds.slide,
        [
            *[*LEASE, *RESERVE, "copy.midway", *PUBLISH, *SCAN, "index.free.before_commit"],
            *["index.reserve.before_commit:1", "copy.midway:1", "index.publish.before_commit:1"],
            *["retire.after_word:1", "index.free.before_commit:1"],
        ],
    ),
    *rounds(deeds.read, ["index.reading", *LEASE, "view.before_map", "copy.midway", *DROP]),
    *rounds(deeds.drop, ["keeper.before_look"]),
    *rounds(deeds.read_scattered, [*LEASE, "copy.midway:1", "lease.before_release:2"]),
    *rounds(deeds.cleared_then_died, ["write_gate.entered", "index.reserve.before_commit"]),
    *rounds(deeds.tags, CHANGE, CHANGED),
    *rounds(deeds.consume, CHANGE, CHANGED),
    *rounds(deeds.reset, CHANGE, CHANGED),
    *rounds(
        deeds.insert,
        [*CHANGE, "index.publish.before_commit"],
        [*CHANGED, "put.after_commit_before_wake"],
    ),
    *rounds(deeds.reap, [*CHANGE, *CHANGED, "reap.before_remove"]),
    *rounds(
        deeds.reclaim,
        [*CHANGE, *CHANGED, "reap.before_remove", *SCAN, "index.free.before_commit", "index.after_commit:1"],
    ),
    *rounds(deeds.trim, [*CHANGE, *CHANGED, "index.before_commit:1"]),
    *rounds(deeds.fork, ["fork.before_handover", "lease_file.locked", "fork.handed_over"]),
    *rounds(deeds.lock_task, ["task.locked"]),
    *rounds(deeds.leave, ["view.before_unmap", "lease.before_release"]),
    *rounds(deeds.join, ["lease_file.locked", "index.slot_locked", "index.slot_locked:1", "index.reading"]),
]


def start_over(world: World) -> None:
    world.empty()
    world.put_plain(EIGHT)
    world.put_keyed(EIGHT)


@pytest.fixture(scope="module", autouse=True)
def start(world: World) -> None:
    start_over(world)
    world.verify()
    world.settle()


def undergo(world: World, deed: Round, point: str, visible: bool) -> None:
    try:
        deed(world, point, visible)
    except BaseException:
        start_over(world)  # what went wrong here must not fail those that follow
        raise


@pytest.mark.parametrize(
    ("deed", "point", "visible"), ROUNDS, ids=[f"{deed.__name__}-{point}" for deed, point, _ in ROUNDS]
)
def test_death_at(world: World, deed: Round, point: str, visible: bool) -> None:
    undergo(world, deed, point, visible)


def in_any_order(world: World, seed: int, deaths: int) -> None:
    """The state that one death leaves is what the next meets. Nothing in shared memory grows."""
    chooser = random.Random(seed)
    start_over(world)
    world.settle()
    files, until = world.files(), world.rounds + deaths
    while world.rounds < until:
        undergo(world, *chooser.choice(ROUNDS))
        assert world.files() == files


def test_deaths_in_any_order(world: World) -> None:
    in_any_order(world, 20240229, 40)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(5))
def test_a_thousand_deaths_in_any_order(world: World, seed: int) -> None:
    in_any_order(world, seed, 1000)


def test_a_child_that_dies_before_it_takes_over(world: World) -> None:
    """Its parent reads on; nothing of the hand-over stays."""
    meta = world.meta_of(EIGHT)
    child = world.nursery.start(victims.fork_a_child_that_dies, world.session.name, meta)
    assert child.receive() == "as it was"
    assert child.wait() == 0
    world.settle()
    world.verify()


def test_many_dead_at_once(world: World) -> None:
    before = world.files()
    points = ["put.after_copy", "index.publish.before_commit", "write_gate.entered", "index.after_commit"]
    children = [
        world.nursery.start(victims.victim, world.session.name, point, victims.put_new, [700 + at], 1)
        for at, point in enumerate(points * 2)
    ]
    assert [child.wait() for child in children] == [-9] * len(children)
    world.settle()
    world.verify()
    assert world.files() == before
