"""fork with a live store: views and calls in the child, and what of the parent the child must not touch."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from tests.unit.native import native_session as ns
from transferqueue._native import DENSE, FieldLayout, Store
from transferqueue.errors import ClosedError

DATA = np.arange(8 * 16384, dtype=np.int64).reshape(8, 16384)
NBYTES = DATA.nbytes


def as_data(tensor: object) -> np.ndarray:
    return tensor.numpy().view(np.int64).reshape(DATA.shape)  # type: ignore[attr-defined]


class Turn:
    """One waits until the other has said so; across fork."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()

    def say(self) -> None:
        os.write(self._write, b"x")

    def wait(self) -> None:
        assert os.read(self._read, 1) == b"x"

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)


@contextmanager
def turns(n: int) -> Iterator[list[Turn]]:
    made = [Turn() for _ in range(n)]
    yield made
    for turn in made:
        turn.close()


@pytest.fixture
def view(store: Store) -> Iterator[list[object]]:
    """A view, in a list so that a test can drop the last reference to it."""
    indexes = ns.put(store, "p", {"a": DATA}, keys=[f"k{i}" for i in range(8)]).indexes
    held: list[object] = [ns.view(store.resolve("p", indexes=indexes))]
    yield held
    held.clear()


def test_views_and_calls_work_in_the_child(session: ns.NativeSession, store: Store, view: list[object]) -> None:
    parent_owner = store.owner

    def child() -> None:
        np.testing.assert_array_equal(as_data(view[0]), DATA)
        as_data(view[0])[:] = -1
        assert store.owner != parent_owner
        np.testing.assert_array_equal(
            ns.get(store, "p", "a", np.int64, keys=[f"k{i}" for i in range(8)]).reshape(DATA.shape), DATA
        )
        ns.put(store, "from_child", {"a": DATA + 1}, keys=["c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7"])
        store.close()
        with pytest.raises(ClosedError):
            store.partitions()

    assert ns.exit_status(ns.fork(child)) == 0
    np.testing.assert_array_equal(as_data(view[0]), DATA)
    assert set(store.partitions()) == {"from_child", "p"}
    got = ns.get(store, "from_child", "a", np.int64, keys=["c0"])
    np.testing.assert_array_equal(got, DATA[0] + 1)
    assert store.owner == parent_owner
    store.reap()
    assert session.lease_files() == [f"{parent_owner}.lease"]


def test_writes_of_the_parent_do_not_show_in_the_child(store: Store, view: list[object]) -> None:
    with turns(2) as (written, _):

        def child() -> None:
            written.wait()
            np.testing.assert_array_equal(as_data(view[0]), DATA)

        pid = ns.fork(child)
        as_data(view[0])[:] = 5
        written.say()
        assert ns.exit_status(pid) == 0


def test_the_child_holds_what_the_parent_lets_go(store: Store, view: list[object]) -> None:
    with turns(2) as (dropped, kept):

        def child() -> None:
            dropped.wait()
            np.testing.assert_array_equal(as_data(view[0]), DATA)
            view.clear()
            kept.say()
            dropped.wait()

        pid = ns.fork(child)
        view.clear()
        store.clear_partition("p")
        assert store.reclaim() == 0
        ns.write_over_free_space(store)
        dropped.say()
        kept.wait()
        store.clear_partition("junk")
        store.reclaim()
        assert ns.stat(store, "free_bytes") == ns.stat(store, "total_bytes")  # while the child still lives
        dropped.say()
        assert ns.exit_status(pid) == 0


def test_a_child_killed_with_inherited_views_frees_them(store: Store, view: list[object]) -> None:
    pid = ns.fork(signal.pause)
    view.clear()
    store.clear_partition("p")
    assert store.reclaim() == 0
    os.kill(pid, signal.SIGKILL)
    assert ns.exit_status(pid) == -signal.SIGKILL
    assert store.reclaim() == NBYTES


def test_a_grandchild_outlives_its_parents(session: ns.NativeSession, store: Store, view: list[object]) -> None:
    with turns(3) as (ready, go, done):

        def grandchild() -> None:
            ready.say()
            go.wait()
            np.testing.assert_array_equal(as_data(view[0]), DATA)
            done.say()

        def child() -> None:
            ns.fork(grandchild)
            ready.wait()  # then the child is gone and the grandchild an orphan

        assert ns.exit_status(ns.fork(child)) == 0
        view.clear()
        store.clear_partition("p")
        ns.write_over_free_space(store)
        go.say()
        done.wait()
        store.clear_partition("junk")
        ns.until(lambda: store.reclaim() >= 0 and ns.stat(store, "free_bytes") == ns.stat(store, "total_bytes"))


def test_what_a_child_may_do_with_its_parents_reservation(store: Store) -> None:
    reservation = store.reserve(NBYTES, 1.0)
    fields = [FieldLayout("a", DENSE, 0, NBYTES, NBYTES // 8)]

    def child() -> None:
        nonlocal reservation
        with pytest.raises(ValueError, match="belongs to the parent"):
            ns.fill(reservation, fields, {"a": DATA + 9})
        with pytest.raises(ValueError, match="belongs to the parent"):
            store.publish("p", count=8, reservation=reservation, fields=fields)
        del reservation
        assert ns.stat(store, "pending_bytes") == NBYTES  # still the parent's

    ns.fill(reservation, fields, {"a": DATA})
    assert ns.exit_status(ns.fork(child)) == 0
    indexes = store.publish("p", count=8, reservation=reservation, fields=fields).indexes
    np.testing.assert_array_equal(ns.get(store, "p", "a", np.int64, indexes=indexes).reshape(DATA.shape), DATA)


def test_a_childs_writes_to_an_allocation_stay_in_the_child(store: Store) -> None:
    reservation = store.reserve(NBYTES, 1.0)
    reservation.map_for_producer()
    tensor = ns.as_tensor(reservation.producer_tensor(0, NBYTES))
    tensor.fill_(1)

    def child() -> None:
        tensor.fill_(2)
        assert (tensor == 2).all()

    assert ns.exit_status(ns.fork(child)) == 0
    assert (tensor == 1).all()
    fields = [FieldLayout("a", DENSE, 0, NBYTES, NBYTES // 8)]
    indexes = store.publish("p", count=8, reservation=reservation, fields=fields).indexes
    assert (ns.get(store, "p", "a", np.uint8, indexes=indexes) == 1).all()


def test_exec_leaves_no_lease_behind(session: ns.NativeSession, store: Store, view: list[object]) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(30)"])
        finally:
            os._exit(1)
    try:
        view.clear()
        store.clear_partition("p")
        ns.until(lambda: store.reclaim() > 0)  # while the exec'd image runs
        assert session.lease_files() == [f"{store.owner}.lease"]
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_forks_amid_threads_that_get_drop_and_put(store: Store, view: list[object]) -> None:
    stop = threading.Event()
    failures: list[BaseException] = []

    def churn(seed: int) -> None:
        try:
            while not stop.is_set():
                resolved = store.resolve("p", keys=[f"k{seed}"])
                capsule = resolved.view(0, 0, 4096)
                ns.put(store, f"churn{seed}", {"a": DATA[:1]})
                del capsule
                resolved.release()
                store.clear_partition(f"churn{seed}")
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=churn, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()

    def child() -> None:
        np.testing.assert_array_equal(as_data(view[0]), DATA)
        np.testing.assert_array_equal(ns.get(store, "p", "a", np.int64, keys=["k3"]), DATA[3])
        ns.put(store, "child", {"a": DATA[:2]})

    try:
        for _ in range(25):
            assert ns.exit_status(ns.fork(child)) == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert failures == []
    view.clear()
    for partition in store.partitions():
        store.clear_partition(partition)
    store.reclaim()
    assert ns.stat(store, "free_bytes") == ns.stat(store, "total_bytes")
