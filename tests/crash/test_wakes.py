"""A producer that dies between its commit and its wake-up: whoever waits for the rows gets them all the same."""

from __future__ import annotations

import time

import pytest
import torch
from tensordict import TensorDict

from tests.crash import victims, waiters
from tests.crash.world import World
from tests.support.versioned_rows import WIDTH

pytestmark = pytest.mark.timeout(120)
BETWEEN = ["index.after_commit:1", "index.publish.after_commit", "put.after_commit_before_wake"]


@pytest.fixture(autouse=True)
def empty(world: World) -> None:
    world.empty()


@pytest.mark.parametrize("how", ["keys", "count", "consumer", "async"])
@pytest.mark.parametrize("exists", [False, True], ids=["new partition", "known partition"])
def test_the_wake_that_never_came(world: World, how: str, exists: bool) -> None:
    if exists:
        world.client.get_meta(["x"], 1, "plain", mode="insert")
        world.client.kv_retrieve_meta("other", "keyed", create=True)
    point = BETWEEN[world.rounds % len(BETWEEN)]
    waiter = world.nursery.start(waiters.wait_for_rows, world.session.name, how)
    assert waiter.receive() == "waiting"
    time.sleep(0.3)  # it sleeps by now; if not, it finds the rows at once
    version = world.next_version()
    world.die(point, victims.put_keys if how == "keys" else victims.put_new, [0, 1], version)
    assert waiter.receive() == [(0, version), (1, version)]
    assert waiter.wait() == 0


def test_a_get_that_waits_for_fields(world: World) -> None:
    waiter = world.nursery.start(waiters.wait_for_rows, world.session.name, "fields")
    assert waiter.receive() == "waiting"
    meta = waiter.receive()
    version = world.next_version()
    world.die("put.after_commit_before_wake", victims.overwrite, meta, [0, 1], version)
    assert waiter.receive() == [(0, version), (1, version)]


def test_room_that_nobody_announces(world: World) -> None:
    """Killed between clearing the rows and freeing their space: a put that waits for room frees it itself."""
    world.settle()
    half = world.client._store.stats()["total_bytes"] // 2 // (WIDTH * 8)
    data = TensorDict({"x": torch.zeros(half + 8, WIDTH, dtype=torch.int64)}, [half + 8])
    meta = world.client.put(data, partition_id="plain")
    putter = world.nursery.start(waiters.put_large, world.session.name, half)
    assert putter.receive() == "putting"
    time.sleep(0.3)
    world.die("retire.after_commit", victims.clear_rows, meta)
    assert putter.receive() == "put"
    assert putter.wait() == 0
