"""kill -9 while the payload segment is backed further, and while the service backs and touches it ahead of use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from tensordict import TensorDict

from tests.crash import victims
from tests.crash.world import World
from tests.support.nursery import Nursery
from tests.support.quiet import without_service
from tests.support.sessions import embedded
from transferqueue.storage.creation import step_bytes

pytestmark = pytest.mark.timeout(120)
MIB = 1 << 20


def step_of(world: World) -> int:
    """The payload is backed in steps of so many bytes; one is backed already."""
    step = step_bytes(world.session.config)
    assert world.client._store.stats()["reserved_bytes"] == step
    assert 3 * step < world.client._store.stats()["total_bytes"]
    return step


@pytest.fixture
def world(nursery: Nursery) -> Iterator[World]:
    with embedded(**{"storage.size": "256MiB"}) as session, without_service(session):
        found = World(session, nursery)
        yield found
        found.nothing_is_lost()


def fill(world: World, nbytes: int) -> None:
    world.client.put(TensorDict({"x": torch.zeros(1, nbytes, dtype=torch.uint8)}, [1]), partition_id="filler")


@pytest.mark.parametrize(
    "point",
    [
        "growth.locked",
        "payload.before_grow",
        # The put that finds no room: it looks for something to free first (no write transaction of its own when nobody
        # died), backs a step under the gate, tells the index, reserves.
        *[f"write_gate.entered:{number}" for number in range(4)],
        *[f"index.before_commit:{number}" for number in range(3)],
        *[f"index.after_commit:{number}" for number in range(3)],
    ],
)
def test_death_in_a_put_that_needs_more_room(world: World, point: str) -> None:
    step = step_of(world)
    fill(world, step - 2 * MIB)
    assert world.client._store.stats()["reserved_bytes"] == step
    world.die(point, victims.put_large, 8 * MIB)
    world.settle()
    fill(world, step)
    world.settle()
    assert world.client._store.stats()["reserved_bytes"] in (2 * step, 3 * step)
    fill(world, step // 2)


def test_death_while_memory_is_touched_ahead(world: World) -> None:
    points = ["payload.before_grow", "write_gate.entered", "index.after_commit"]  # the first with the growth lock held
    step = step_of(world)
    for number, point in enumerate(points, start=2):
        world.die(point, victims.populate, number * step // 2 + step)
        world.settle()
    # What was backed and not told to the index is found when it is needed.
    fill(world, world.client._store.stats()["total_bytes"] - MIB)
