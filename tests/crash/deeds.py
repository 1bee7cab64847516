"""The rounds of `test_kill_points`: what is there before, who dies doing what, what must be there afterwards.

``deed(world, point, visible)``: `visible` says whether the point lies behind the commit that makes the change seen.
"""

from __future__ import annotations

import torch
from tensordict import TensorDict

from tests.crash import victims
from tests.crash.world import World
from tests.race.deeds import fill_all_room
from tests.support.versioned_rows import rows

EIGHT = list(range(8))


def put_new(world: World, point: str, visible: bool) -> None:
    numbers, version = [100, 101, 102], world.next_version()
    world.die(point, victims.put_new, numbers, version)
    world.settle()
    after = {**world.plain, **dict.fromkeys(numbers, version)}
    world.verify(plain=after)
    assert (world.plain == after) is visible
    if visible:
        world.client.clear_samples(world.meta_of(numbers))
        world.forget_plain(numbers)


def overwrite(world: World, point: str, visible: bool) -> None:
    version = world.next_version()
    world.die(point, victims.overwrite, world.meta_of(EIGHT), EIGHT, version)
    world.settle()
    after = {**world.plain, **dict.fromkeys(EIGHT, version)}
    world.verify(plain=after)
    assert (world.plain == after) is visible


def overwrite_some(world: World, point: str, visible: bool) -> None:
    """The old block keeps its other rows, so nothing is retired."""
    version = world.next_version()
    world.die(point, victims.overwrite, world.meta_of([2, 5]), [2, 5], version)
    world.settle()
    after = {**world.plain, 2: version, 5: version}
    world.verify(plain=after)
    assert (world.plain == after) is visible
    world.client.put(rows(EIGHT, version + 1), metadata=world.meta_of(EIGHT))
    world.next_version()
    world.plain |= dict.fromkeys(EIGHT, version + 1)


def put_keys(world: World, point: str, visible: bool) -> None:
    """Half of the keys are new."""
    numbers, version = [0, 1, 2, 3, 50, 51, 52, 53], world.next_version()
    world.die(point, victims.put_keys, numbers, version)
    world.settle()
    after = {**world.keyed, **dict.fromkeys(numbers, version)}
    world.verify(keyed=after)
    assert (world.keyed == after) is visible
    if visible:
        world.client.kv_clear([f"k{n}" for n in numbers], "keyed")
        for number in numbers:
            del world.keyed[number]
        world.put_keyed(numbers[:4])


def overwrite_keys(world: World, point: str, visible: bool) -> None:
    numbers, version = [4, 5, 6, 7], world.next_version()
    world.put_keyed(numbers)
    world.die(point, victims.put_keys, numbers, version)
    world.settle()
    after = {**world.keyed, **dict.fromkeys(numbers, version)}
    world.verify(keyed=after)
    assert (world.keyed == after) is visible


def in_place(world: World, point: str, visible: bool) -> None:
    _in_place(world, point, visible, keep=False)


def in_place_kept(world: World, point: str, visible: bool) -> None:
    """A tensor of the allocation is alive at the commit, and written to afterwards."""
    _in_place(world, point, visible, keep=True)


def _in_place(world: World, point: str, visible: bool, keep: bool) -> None:
    numbers, version = [4, 5, 6, 7], world.next_version()
    world.put_keyed(numbers)
    world.die(point, victims.put_in_place, numbers, version, keep)
    world.settle()
    after = {**world.keyed, **dict.fromkeys(numbers, version)}
    world.verify(keyed=after)
    assert (world.keyed == after) is visible


def abort(world: World, point: str, _: bool) -> None:
    world.die(point, victims.abandon_in_place, "abort")
    world.settle()
    world.verify()


def abort_kept(world: World, point: str, _: bool) -> None:
    """Aborted while a tensor is alive: the extent is given back when that dies."""
    world.die(point, victims.abandon_in_place, "abort with tensors")
    world.settle()
    world.verify()


def clear_rows(world: World, point: str, visible: bool) -> None:
    numbers = [200, 201, 202]
    meta = world.put_plain(numbers)
    world.die(point, victims.clear_rows, meta)
    world.settle()
    after = {number: version for number, version in world.plain.items() if number not in numbers}
    world.verify(plain=after)
    assert (world.plain == after) is visible
    world.client.clear_samples(meta)
    world.plain = after


def clear_keys(world: World, point: str, visible: bool) -> None:
    numbers = [60, 61]
    world.put_keyed(numbers)
    world.die(point, victims.clear_keys, [f"k{n}" for n in numbers])
    world.settle()
    after = {number: version for number, version in world.keyed.items() if number not in numbers}
    world.verify(keyed=after)
    assert (world.keyed == after) is visible
    if not visible:
        world.client.kv_clear(["k60", "k61"], "keyed")
    world.keyed = after


def clear_many(world: World, point: str, visible: bool) -> None:
    """More rows than one transaction removes: hidden by one commit, removed in batches, by others if need be."""
    keys = [f"row {n}" for n in range(5000)]
    many = TensorDict({"x": torch.arange(5000)}, [5000])
    world.client.kv_batch_put(keys, "many", many)
    meta = world.client.kv_retrieve_meta(keys, "many")
    world.die(point, victims.clear_rows, meta)
    left = world.client.kv_list("many")["many"]
    assert len(left) == (0 if visible else 5000)
    world.settle()
    world.verify()
    world.client.clear_partition("many")


def clear_partition(world: World, point: str, visible: bool) -> None:
    keys = [f"row {n}" for n in range(3000)]
    world.client.kv_batch_put(keys, "doomed", TensorDict({"x": torch.arange(3000)}, [3000]))
    world.die(point, victims.clear_partition, "doomed")
    assert ("doomed" in world.client.get_partition_list()) is not visible
    # The name can be used at once, whatever is left of the old rows.
    world.client.kv_put("row 1", "doomed", {"x": torch.tensor(-1)})
    assert world.client.kv_batch_get("row 1", "doomed")["x"].tolist() == [-1]
    assert len(world.client.kv_list("doomed")["doomed"]) == (1 if visible else 3000)
    world.settle()
    world.verify()
    world.client.clear_partition("doomed")


def coalesce(world: World, point: str, _: bool) -> None:
    numbers = [300, 301, 302, 303]
    meta = world.scatter(numbers)
    world.die(point, victims.coalesce, meta)
    world.settle()
    world.verify()
    world.client.clear_samples(meta)
    world.forget_plain(numbers)


def compact(world: World, point: str, _: bool) -> None:
    """Of two blocks little lives."""
    kept = _sparse(world)
    world.die(point, victims.compact)
    world.settle()
    world.verify()
    world.client.clear_samples(world.meta_of(kept))
    world.forget_plain(kept)


def compact_full(world: World, point: str, _: bool) -> None:
    """With no room for the copy but the headroom."""
    kept = _sparse(world, full=True)
    world.die(point, victims.compact)
    world.client.clear_partition("filler")
    world.settle()
    world.verify()
    world.client.clear_samples(world.meta_of(kept))
    world.forget_plain(kept)


def slide(world: World, point: str, _: bool) -> None:
    """What lives is larger than each gap."""
    kept = []
    for number in range(12):
        kept.append(world.client.put(_of_bytes(number, 96 << 10), partition_id="kept"))
        world.client.put(_of_bytes(0xDD, 64 << 10), partition_id="gaps")
    fill_all_room(world.client, 0xEE)
    world.client.clear_partition("gaps")
    world.die(point, victims.slide, 6 * (64 << 10))
    for number, meta in enumerate(kept):
        assert (world.client.get_data(meta, mode="copy")["x"] == number).all()
    for partition in ("filler", "kept"):
        world.client.clear_partition(partition)
    world.settle()
    world.verify()


def _of_bytes(value: int, nbytes: int) -> TensorDict:
    """One row."""
    return TensorDict({"x": torch.full((1, nbytes), value, dtype=torch.uint8)}, [1])


def _sparse(world: World, *, full: bool = False) -> list[int]:
    blocks = [list(range(first, first + 16)) for first in (300, 320)]
    for numbers in blocks:
        world.put_plain(numbers)
    if full:
        fill_all_room(world.client, 0xEE)
    gone = [number for numbers in blocks for number in numbers[:5] + numbers[7:]]
    world.client.clear_samples(world.meta_of(gone))
    world.forget_plain(gone)
    return [number for numbers in blocks for number in numbers[5:7]]


def read(world: World, point: str, _: bool) -> None:
    """The rows are cleared after the reader's death: its leases keep nothing."""
    numbers = list(range(400, 408))
    meta = world.put_plain(numbers)
    world.die(point, victims.read, meta, "cow")
    world.client.clear_samples(meta)
    world.forget_plain(numbers)
    world.settle()
    world.verify()


def drop(world: World, point: str, _: bool) -> None:
    """In the thread that looks at dropped mappings, of a mebibyte and more."""
    numbers = list(range(400, 480))
    meta = world.put_plain(numbers)
    world.die(point, victims.drop, meta)
    world.client.clear_samples(meta)
    world.forget_plain(numbers)
    world.settle()
    world.verify()


def read_scattered(world: World, point: str, _: bool) -> None:
    numbers = list(range(400, 404))
    meta = world.scatter(numbers)
    world.die(point, victims.read, meta, "copy")
    world.client.clear_samples(meta)
    world.forget_plain(numbers)
    world.settle()
    world.verify()


def cleared_then_died(world: World, point: str, _: bool) -> None:
    """The rows are cleared while the reader holds views; only its death gives the space back."""
    numbers = list(range(400, 408))
    meta = world.put_plain(numbers)
    for mode in ("cow", "shared"):
        world.die(point, victims.hold, meta, mode)
    world.client.clear_samples(meta)
    world.forget_plain(numbers)
    world.settle()
    world.verify()


def tags(world: World, point: str, visible: bool) -> None:
    meta = world.meta_of(EIGHT)
    value = world.next_version()
    world.die(point, victims.set_tags, meta, value)
    found = world.client.get_meta(["x"], 0, "plain", mode="force_fetch").custom_meta
    assert [tag.get("tagged") == value for tag in found[:8]] == [visible] * 8
    world.settle()
    world.verify()


def consume(world: World, point: str, visible: bool) -> None:
    task = f"task {world.next_version()}"
    world.die(point, victims.consume, task, 5)
    _, consumed = world.client.get_consumption_status(task, "plain")
    assert consumed is not None
    assert int(consumed.sum()) == (5 if visible else 0)
    # Who comes next gets the rest, and nothing twice.
    rest = world.client.get_meta(["x"], len(world.plain) - (5 if visible else 0), "plain", task_name=task, timeout=0)
    assert world.client.check_consumption_status(task, "plain")
    assert len(set(rest.global_indexes)) == rest.size
    world.settle()
    world.verify()


def reset(world: World, point: str, visible: bool) -> None:
    world.client.reset_consumption("plain", "task")
    taken = world.client.get_meta(["x"], 4, "plain", task_name="task", timeout=0)
    world.die(point, victims.forget_consumption, "task")
    _, consumed = world.client.get_consumption_status("task", "plain")
    assert consumed is not None
    assert int(consumed.sum()) == (0 if visible else taken.size)
    world.settle()
    world.verify()


def insert(world: World, point: str, visible: bool) -> None:
    world.client.clear_partition("bare")
    world.die(point, victims.insert, "bare", 3)
    assert ("bare" in world.client.get_partition_list()) is visible
    if visible:
        assert world.client.get_meta(["x"], 0, "bare", mode="force_fetch").size == 3
    world.settle()
    world.verify()


def _remains(world: World) -> None:
    """Of a dead process: a reservation, views of rows that were cleared while it lived, a lease file."""
    numbers = list(range(500, 508))
    meta = world.put_plain(numbers)
    child = world.nursery.start(victims.hold_until_killed, world.session.name, meta)
    assert child.receive() == "holding"
    world.client.clear_samples(meta)
    world.forget_plain(numbers)
    child.kill()
    child.wait()
    world.rounds += 1
    stats = world.client._store.stats()
    assert stats["pending_bytes"] > 0
    assert stats["retired_bytes"] > 0


def reap(world: World, point: str, _: bool) -> None:
    _remains(world)
    world.die(point, victims.housekeeping, "reap")
    world.settle()
    world.verify()


def reclaim(world: World, point: str, _: bool) -> None:
    _remains(world)
    world.die(point, victims.housekeeping, "reclaim")
    world.settle()
    world.verify()


def trim(world: World, point: str, _: bool) -> None:
    world.die(point, victims.housekeeping, "trim")
    world.settle()
    world.verify()


def fork(world: World, point: str, _: bool) -> None:
    numbers = list(range(600, 608))
    meta = world.put_plain(numbers)
    world.die(point, victims.fork_with_views, meta)
    world.client.clear_samples(meta)
    world.forget_plain(numbers)
    world.settle()
    world.verify()


def lock_task(world: World, point: str, _: bool) -> None:
    """Whoever needs it next has it at once."""
    world.die(point, victims.lock_task, "task")
    with world.client._store.lock_task("plain", "task", 0.0):
        pass
    world.settle()
    world.verify()


def leave(world: World, point: str, _: bool) -> None:
    """Killed while a view outlives the session in its process."""
    numbers = list(range(600, 608))
    meta = world.put_plain(numbers)
    world.die(point, victims.leave, meta)
    world.client.clear_samples(meta)
    world.forget_plain(numbers)
    world.settle()
    world.verify()


def join(world: World, point: str, _: bool) -> None:
    assert world.nursery.run(victims.joiner, world.session.name, point) == -9
    world.rounds += 1
    world.settle()
    world.verify()
