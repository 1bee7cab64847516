"""kill -9 in the middle of a save or a load: an older checkpoint, or the rows that were there, are as they were; the
next call copes with what the dead left behind."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.crash import checkpoint_victims
from tests.crash.world import World

pytestmark = pytest.mark.timeout(120)


def names(directory: Path) -> list[str]:
    return sorted(entry.name for entry in directory.iterdir())


@pytest.mark.parametrize(
    ("exchange", "stride"), [(True, 1), (False, 3), pytest.param(False, 1, marks=pytest.mark.soak)]
)
def test_a_save_that_dies_at_any_step(world: World, tmp_path: Path, exchange: bool, stride: int) -> None:
    world.empty()
    world.put_plain(range(4))
    world.put_keyed(range(3))
    place = tmp_path / "c"
    world.client.save_checkpoint(place, metadata=0)
    metadata, step, deaths = 0, 0, 0
    while True:
        child = world.nursery.start(
            checkpoint_victims.save_until_step, world.session.name, str(place), metadata + 1, step, exchange
        )
        status = child.wait()
        if status == 0:
            break
        assert status == -signal.SIGKILL
        deaths += 1
        # Sometimes the loader, sometimes the next saver is the first to meet what is left.
        if deaths % 2 == 0:
            found = world.client.load_checkpoint(place)
            assert found in (metadata, metadata + 1)
            metadata = found
            world.verify()
        step += stride
        world.settle()
    assert deaths >= 25 // stride
    assert names(tmp_path) == ["c"]
    assert world.client.load_checkpoint(place) == metadata + 1
    world.verify()
    world.settle()


@pytest.mark.parametrize("point", ["save.after_blocks", "lease.before_recheck", "save.after_snapshot"])
def test_a_save_that_dies_with_leases(world: World, tmp_path: Path, point: str) -> None:
    world.empty()
    world.put_plain(range(4))
    place = tmp_path / "c"
    world.client.save_checkpoint(place, metadata="old")
    world.die(point, checkpoint_victims.save, str(place), "new")
    world.settle()
    assert world.client.load_checkpoint(place) == "old"
    world.verify()
    world.client.save_checkpoint(place)
    assert names(tmp_path) == ["c"]


BEFORE = [
    *("index.reserve.before_commit", "put.after_copy", "put.after_copy:1", "load.before_commit"),
    *("index.replace.before_commit", "index.before_commit:2"),
]
AFTER = [
    *("index.replace.after_commit", "load.after_commit", "index.clear.between_batches", "retire.after_commit"),
    *("retire.after_word", "index.free.before_commit"),
]


@pytest.mark.parametrize(
    ("point", "loaded"), [*((point, False) for point in BEFORE), *((point, True) for point in AFTER)]
)
def test_a_load_that_dies(world: World, tmp_path: Path, point: str, loaded: bool) -> None:
    world.empty()
    world.put_plain(range(16))
    world.put_keyed(range(4))
    saved = dict(world.plain), dict(world.keyed)
    world.client.save_checkpoint(tmp_path / "c")
    world.empty()
    world.put_plain([20, 21])
    world.put_keyed([1, 30])
    world.die(point, checkpoint_victims.load, str(tmp_path / "c"))
    if loaded:
        world.plain, world.keyed = saved
    world.verify()
    world.settle()
    world.client.load_checkpoint(tmp_path / "c")
    world.plain, world.keyed = saved
    world.verify()
    world.settle()
