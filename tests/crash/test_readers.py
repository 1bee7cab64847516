"""Field case 70: readers that are killed leave nothing, however many of them there were."""

from __future__ import annotations

import signal

import pytest

from tests.crash import victims
from tests.crash.world import World

pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize("tens", [3, pytest.param(10, marks=pytest.mark.soak)])
def test_readers_killed_with_views_in_hand(world: World, tens: int) -> None:
    """Up to a hundred."""
    world.empty()
    numbers = list(range(16))
    meta = world.put_plain(numbers)
    world.verify()
    world.settle()
    files, index_bytes = world.files(), world.client._store.stats()["index_used_bytes"]
    for _ in range(tens):
        readers = [
            world.nursery.start(victims.read_until_killed, world.session.name, meta, mode)
            for mode in ("cow", "copy", "shared", "cow", "cow", "copy", "shared", "cow", "cow", "cow")
        ]
        for reader in readers:
            assert reader.receive() == "reading"
        for reader in readers:
            reader.kill()
        assert [reader.wait() for reader in readers] == [-signal.SIGKILL] * 10
    world.settle()
    world.verify()
    assert world.files() == files
    # The last ones may still pin a few pages; nothing adds up.
    assert world.client._store.stats()["index_used_bytes"] <= index_bytes + 64 * 4096
    assert [client.pid for client in world.client.stats().clients if not client.alive] == []


def test_rows_cleared_under_readers_that_are_then_killed(world: World) -> None:
    """What they see stays what it was until the end; after their death the space is back."""
    world.empty()
    world.settle()
    meta = world.put_plain(range(16))
    readers = [world.nursery.start(victims.read_until_killed, world.session.name, meta, "cow") for _ in range(4)]
    for reader in readers:
        assert reader.receive() == "reading"
    world.client.clear_samples(meta)
    world.forget_plain(range(16))
    world.client._store.reclaim()
    assert world.client._store.stats()["retired_bytes"] > 0
    # New rows take whatever space they can get.
    world.put_plain(range(100, 164))
    for reader in readers:
        reader.pipe.send("look")
        assert reader.receive() == "as it was"
    readers[0].kill()
    readers[0].wait()
    world.client._store.reap()
    world.client._store.reclaim()
    assert world.client._store.stats()["retired_bytes"] > 0, "three others hold it still"
    for reader in readers[1:]:
        reader.kill()
        reader.wait()
    world.settle()
    world.verify()
