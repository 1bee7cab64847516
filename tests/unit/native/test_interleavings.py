"""The interleavings that break naive versions, each forced by stopping a thread at a named point."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import pytest

from tests.unit.native import native_session as ns
from transferqueue import _native
from transferqueue._native import Store

T = TypeVar("T")
KEYS = [f"k{i}" for i in range(4)]


def version(number: int) -> dict[str, np.ndarray]:
    return {"a": np.full((4, 32768), number, np.int64)}


armed: list[str] = []


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as made:
        try:
            yield made
        finally:
            while armed:  # before the pool waits for its threads
                _native.resume(armed.pop())


def arm(name: str, action: str) -> None:
    armed.append(name)
    _native.arm_pause(name, action)


def stopped_at(pool: ThreadPoolExecutor, point: str, work: Callable[[], T]) -> Future[T]:
    """`work` in another thread, which now stands at the point."""
    arm(point, "stop")
    future = pool.submit(work)
    ns.until(lambda: _native.paused(point) or future.done())
    assert not future.done(), future.result()
    return future


def finish(point: str, future: Future[Any]) -> Any:
    _native.resume(point)
    return future.result(timeout=30)


def read(store: Store) -> np.ndarray:
    return ns.get(store, "p", "a", np.int64, keys=KEYS)


@pytest.mark.parametrize("point", ["get.after_resolve", "lease.before_store"])
def test_block_reused_between_resolve_and_lease(store: Store, pool: ThreadPoolExecutor, point: str) -> None:
    ns.put(store, "p", version(1), keys=KEYS)
    reader = stopped_at(pool, point, lambda: read(store))
    ns.put(store, "p", version(2), keys=KEYS)  # nobody leases the old block: it is freed in this call
    assert ns.stat(store, "retired_bytes") == 0
    ns.write_over_free_space(store)
    assert (finish(point, reader) == 2).all()


def test_lease_stored_but_not_yet_checked_keeps_the_block(store: Store, pool: ThreadPoolExecutor) -> None:
    ns.put(store, "p", version(1), keys=KEYS)
    reader = stopped_at(pool, "lease.before_recheck", lambda: read(store))
    ns.put(store, "p", version(2), keys=KEYS)
    assert store.reclaim() == 0  # the claim is seen, whether or not its owner will be content with it
    ns.write_over_free_space(store)
    assert (finish("lease.before_recheck", reader) == 2).all()  # the word said retired: resolved again
    assert store.reclaim() > 0


def test_a_copy_holds_a_lease(store: Store, pool: ThreadPoolExecutor) -> None:
    ns.put(store, "p", version(1), keys=KEYS)
    reader = stopped_at(pool, "copy.midway", lambda: read(store))
    store.clear_partition("p")
    assert store.reclaim() == 0
    ns.write_over_free_space(store)
    assert (finish("copy.midway", reader) == 1).all()
    assert store.reclaim() == version(1)["a"].nbytes


def test_after_eight_lost_races_a_get_still_ends(store: Store, pool: ThreadPoolExecutor) -> None:
    ns.put(store, "p", version(0), keys=KEYS)
    first, second = "get.after_resolve", "lease.before_store"
    reader = stopped_at(pool, first, lambda: read(store))
    for number in range(1, 9):
        assert _native.paused(first)
        arm(second, "stop")
        _native.resume(first)
        ns.until(lambda: _native.paused(second))
        ns.put(store, "p", version(number), keys=KEYS)  # the snapshot of this round is void
        if number < 8:
            arm(first, "stop")
        _native.resume(second)
        if number < 8:
            ns.until(lambda: _native.paused(first) or reader.done())
    assert (reader.result(timeout=30) == 8).all()


def test_block_freed_by_another_between_scan_and_second_transaction(
    session: ns.NativeSession, store: Store, pool: ThreadPoolExecutor
) -> None:
    ns.put(store, "p", version(1), keys=KEYS)
    code = """
input(); print(store.reclaim(), flush=True)
input(); ns.put(store, 'q', dict(a=np.full((4, 32768), 7)))
"""
    rival = ns.start(session, code)
    clearer = stopped_at(pool, "retire.after_word", lambda: store.clear_rows("p", keys=KEYS))
    assert rival.stdin is not None
    assert rival.stdout is not None
    rival.stdin.write("\n")
    rival.stdin.flush()
    assert int(rival.stdout.readline()) == version(1)["a"].nbytes  # the rival frees the block ...
    rival.communicate("\n", timeout=30)
    assert rival.returncode == 0
    [q] = [row for row in store.partition_stats() if row["name"] == "q"]
    assert finish("retire.after_word", clearer) == 4  # ... and we, late, must not free what lies there now
    assert ns.stat(store, "used_bytes") == q["live_bytes"]
    ns.write_over_free_space(store)
    indexes = store.list_rows("q").indexes
    assert (ns.get(store, "q", "a", np.int64, indexes=indexes) == 7).all()


def test_death_between_commit_and_wake_is_seen_by_looking_again(session: ns.NativeSession, store: Store) -> None:
    store.ensure_partition("p")
    seen, before = store.wake_word("p"), store.partition_version("p")

    def child() -> None:
        _native.arm_pause("put.after_commit_before_wake", "kill")
        ns.put(store, "p", version(1), keys=KEYS)

    assert ns.exit_status(ns.fork(child)) == -signal.SIGKILL
    assert not store.wait_word("p", seen, 0.05)  # nobody woke us, and nobody will
    assert store.partition_version("p") > before
    assert (read(store) == 1).all()


def test_two_publications_of_one_reservation(store: Store, pool: ThreadPoolExecutor) -> None:
    fields, nbytes = ns.layouts(version(1))
    reservation = store.reserve(nbytes, 1.0)
    ns.fill(reservation, fields, version(1))
    publish = lambda: store.publish("p", keys=KEYS, reservation=reservation, fields=fields)  # noqa: E731
    first = stopped_at(pool, "put.before_publish", publish)
    second = pool.submit(publish)
    time.sleep(0.05)
    assert not second.done()  # it waits for the first
    finish("put.before_publish", first)
    with pytest.raises(ValueError, match="already published"):
        second.result(timeout=30)
    assert (read(store) == 1).all()


def test_close_waits_for_calls_in_flight(session: ns.NativeSession, pool: ThreadPoolExecutor) -> None:
    store = session.attach()
    publication = stopped_at(pool, "put.before_publish", lambda: ns.put(store, "p", version(1), keys=KEYS))
    closing = pool.submit(store.close)
    time.sleep(0.05)
    assert not closing.done()
    assert finish("put.before_publish", publication).indexes.shape == (4,)
    closing.result(timeout=30)
    again = session.attach()
    assert (read(again) == 1).all()
    again.close()
