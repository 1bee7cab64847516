"""SIGSTOP: who stands still holds up nobody outside an index transaction; inside one, readers go on, writers end at
their own deadline with the name of who holds the lock, and all goes on when it is continued or killed."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

import transferqueue as tq
from tests.crash import frozen as help_
from tests.crash import victims
from tests.crash.frozen import (
    EIGHT,
    SHORT_S,
    durations,
    for_seconds,
    frozen,
    held,
    is_named,
    join_and_read,
    meta_of,
    read_everything,
    write_everything,
)
from tests.crash.world import World
from tests.support.compaction import compact
from tests.support.sessions import wait_for
from tests.support.versioned_rows import rows, versions_of
from transferqueue import TransferQueueClient

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(autouse=True)
def eight_rows(world: World) -> Iterator[None]:
    world.empty()
    world.put_plain(EIGHT)
    world.put_keyed([0, 1])
    yield
    world.settle()


def overwrite(client: TransferQueueClient, arm: victims.Arm, meta: tq.BatchMeta, version: int) -> None:
    victims.overwrite(client, arm, meta, EIGHT, version)


OUTSIDE: list[tuple[str, Callable[..., None], Callable[[World], tuple[object, ...]]]] = [
    ("put.after_copy", overwrite, lambda world: (meta_of(world), world.plain[0])),
    ("put.before_publish", overwrite, lambda world: (meta_of(world), world.plain[0])),
    ("put.after_commit_before_wake", overwrite, lambda world: (meta_of(world), world.plain[0])),
    ("retire.before_scan", overwrite, lambda world: (meta_of(world), world.plain[0])),
    ("retire.after_word", overwrite, lambda world: (meta_of(world), world.plain[0])),
    ("get.after_resolve", victims.read, lambda world: (meta_of(world), "cow")),
    ("lease.before_recheck", victims.read, lambda world: (meta_of(world), "copy")),
    ("copy.midway", victims.read, lambda world: (meta_of(world), "copy")),
    ("view.unmapped", victims.read, lambda world: (meta_of(world), "cow")),
    ("task.locked", help_.hold_task_lock, lambda world: ()),
    ("claim.before_wake", help_.claim_and_ack, lambda world: ()),
    ("reap.before_remove", victims.housekeeping, lambda world: ("reap",)),
    ("fork.before_handover", victims.fork_with_views, lambda world: (meta_of(world),)),
]


@durations
@pytest.mark.parametrize(("point", "deed", "given"), OUTSIDE, ids=[point for point, _, _ in OUTSIDE])
def test_outside_an_index_transaction_nobody_stalls(
    world: World, point: str, deed: Callable[..., None], given: Callable[[World], tuple[object, ...]], seconds: float
) -> None:
    if point == "reap.before_remove":
        child = world.nursery.start(victims.hold_until_killed, world.session.name, meta_of(world))
        assert child.receive() == "holding"
        child.kill()
        child.wait()
    with frozen(world, point, deed, *given(world)):
        for_seconds(seconds, read_everything, write_everything)(world)
        join_and_read(world)
    world.verify()


@durations
def test_inside_one_readers_go_on_and_writers_are_told_who_holds_it(world: World, seconds: float) -> None:
    meta, version = meta_of(world), world.plain[0]
    client = world.client
    calls: list[Callable[..., object]] = [
        partial(client.put, rows([100], 1), partition_id="others"),
        partial(client.claim, "t", "plain", fields="x", batch_size=2, lease_s=60),
        partial(client.kv_put, "a", "others", tag={"a": 1}),
        partial(client.get_meta, "x", 2, "plain", task_name="t"),
    ]
    with frozen(world, "index.publish.before_commit", overwrite, meta, version) as child:
        # In the short form those that take other ways to the lock.
        for call in calls if seconds > SHORT_S else calls[:2]:
            began_s = time.monotonic()
            with pytest.raises(tq.TransferTimeoutError) as error:
                call(timeout=1.2)
            is_named(error, child.pid)
            assert time.monotonic() - began_s >= 1.2
        for_seconds(seconds, read_everything)(world)
        join_and_read(world)
    write_everything(world)
    world.verify()


@pytest.mark.parametrize("point", ["write_gate.entered", "index.publish.before_commit", "index.after_commit"])
def test_a_writer_killed_where_it_stands_is_replaced_at_once(world: World, point: str) -> None:
    meta, version = meta_of(world), world.next_version()
    child = world.nursery.start(help_.freeze_at, world.session.name, point, overwrite, meta, version)
    with held(child):
        child.kill()
        assert child.wait() == -signal.SIGKILL
        world.client.put(rows([100], 1), partition_id="others", timeout=5.0)
        world.client.clear_partition("others")
    world.verify(plain={**world.plain, **dict.fromkeys(EIGHT, version)})


@pytest.mark.timeout(25)  # the calls would wait for 30 s
def test_who_waits_for_a_writer_that_stands_still_hears_of_ctrl_c(world: World) -> None:
    client = world.client
    claimed = client.claim("t", "plain", fields="x", batch_size=2, lease_s=60)
    calls: list[Callable[[], object]] = [
        partial(client.put, rows([100], 1), partition_id="others", timeout=30),
        partial(client.clear_partition, "plain"),
        partial(client.clear_samples, meta_of(world)),
        partial(client.ack, claimed),
        partial(client.set_limits, "others", max_bytes=None),
    ]
    with frozen(world, "write_gate.entered", overwrite, meta_of(world), world.plain[0]):
        for call in calls:
            timer = threading.Timer(0.3, signal.raise_signal, [signal.SIGINT])
            timer.start()
            with pytest.raises(KeyboardInterrupt):
                call()
            timer.join()
        read_everything(world)
    client.nack(claimed)
    write_everything(world)
    client.set_limits("others", remove=True)
    world.verify()


def compact_sparse(client: TransferQueueClient, arm: victims.Arm, meta: tq.BatchMeta) -> None:
    client.clear_samples(meta)
    arm()
    compact(client)


def test_a_compaction_that_stands_still_keeps_nobody_from_compacting(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    sparse = [world.client.put(rows(range(32), 1), partition_id="sparse") for _ in range(2)]
    gone = [meta.select_samples(list(range(2, 32))) for meta in sparse]
    with caplog.at_level("WARNING", "transferqueue"):
        with frozen(world, "copy.midway", compact_sparse, gone[0]) as child:
            world.client.clear_samples(gone[1])
            assert compact(world.client) > 0
            assert f"process {child.pid} (" in caplog.text
            assert "compaction goes on beside it" in caplog.text
            for meta in sparse:
                assert versions_of(world.client.get_data(meta.select_samples([0, 1]))) == [(0, 1), (1, 1)]
    world.client.clear_partition("sparse")
    world.verify()


def test_it_stops_while_others_wait_and_goes_on(world: World) -> None:
    """A writer that waits for the lock gets it when the holder is continued, well before its own deadline."""
    with frozen(world, "index.before_commit", overwrite, meta_of(world), world.plain[0]) as child:
        putter = world.nursery.start(help_.freeze_at, world.session.name, "nowhere", put_one)
        time.sleep(0.3)
        assert not putter.pipe.poll()
        child.kill(signal.SIGCONT)
        assert putter.receive() == "done"
        assert putter.wait() == 0
        # `held` looks whether it still stands: it got through.
        assert child.receive() == "done"
        assert child.wait() == 0


def put_one(client: TransferQueueClient, arm: victims.Arm) -> None:
    client.put(rows([1], 1), partition_id="others", timeout=60)
    client.clear_partition("others")


@durations
def test_a_waiter_that_stands_still_stalls_nobody_and_wakes_late(world: World, tmp_path: Path, seconds: float) -> None:
    sign = tmp_path / "sign"
    child = world.nursery.start(help_.freeze_at, world.session.name, "nowhere", help_.wait_in_vain, str(sign))
    wait_for(sign.exists, what="the wait")
    child.kill(signal.SIGSTOP)
    with held(child):
        for_seconds(seconds, read_everything, write_everything)(world)


@durations
def test_a_process_that_stands_still_joining(world: World, seconds: float) -> None:
    for point in ("lease_file.locked", "index.slot_locked", "index.slot_locked:1"):
        child = world.nursery.start(help_.freeze_joining, world.session.name, point)
        with held(child):
            for_seconds(seconds, read_everything, write_everything)(world)
            if point == "lease_file.locked":
                join_and_read(world)
    world.verify()
