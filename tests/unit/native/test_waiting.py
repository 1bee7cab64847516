"""Sleeping on words: who is woken, by what, and who is not."""

from __future__ import annotations

import os
import threading
import time

import numpy as np
import pytest

from tests.unit.native import native_session as ns
from transferqueue import errors
from transferqueue._native import Store

DATA = {"a": np.ones((2, 4), np.int64)}


def wait(store: Store, partition: str | None, seen: int, timeout_s: float = 20.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if store.wait_word(partition, seen, 0.1):
            return True
    return False


def test_a_word_that_nobody_changes(store: Store) -> None:
    seen = store.wake_word("p")
    start = time.monotonic()
    assert not store.wait_word("p", seen, 0.05)
    assert time.monotonic() - start >= 0.05
    assert store.wait_word("p", seen + 1, 20.0)  # differs already: does not sleep


def test_commits_wake_those_of_the_partition_and_of_the_session(store: Store) -> None:
    indexes = ns.put(store, "p", DATA).indexes
    for change in (
        lambda: ns.put(store, "p", DATA),
        lambda: store.publish("p", indexes=indexes, tags=[b"\0\0\0\0"] * 2),
        lambda: store.merge_tags("p", indexes, [b"\0\0\0\0"] * 2),
        lambda: store.task_reset("p", None),
        lambda: store.clear_rows("p", indexes=indexes[:1]),
        lambda: store.wake("p"),
        lambda: store.clear_partition("p"),
        lambda: store.ensure_partition("p"),
    ):
        words = store.wake_word("p"), store.wake_word(None)
        change()
        assert store.wait_word("p", words[0], 0.0)
    assert store.wait_word(None, words[1], 0.0)


def test_asking_for_a_partition_that_exists_wakes_nobody(store: Store) -> None:
    first = store.ensure_partition("p")
    seen = store.wake_word("p")
    assert store.ensure_partition("p") == first
    assert not store.wait_word("p", seen, 0.0)


def test_other_partitions_sleep_on(store: Store) -> None:
    seen = store.wake_word("another")
    ns.put(store, "p", DATA)
    assert not store.wait_word("another", seen, 0.01)


def test_a_sleeper_is_woken_by_another_process(session: ns.NativeSession, store: Store) -> None:
    seen = store.wake_word("not_there_yet")
    woken: list[bool] = []
    thread = threading.Thread(target=lambda: woken.append(wait(store, "not_there_yet", seen)))
    thread.start()
    status = ns.run(session, "ns.put(store, 'not_there_yet', dict(a=np.ones((1, 1))))")
    assert status[0] == 0, status
    thread.join()
    assert woken == [True]
    assert len(store.list_rows("not_there_yet").indexes) == 1


def test_the_end_of_the_session_wakes_everybody(session: ns.NativeSession, store: Store) -> None:
    store.ensure_partition("p")
    results: list[object] = []

    def sleeper(partition: str | None) -> None:
        try:
            while True:
                store.wait_word(partition, store.wake_word(partition), 10.0)
        except errors.SessionNotFoundError:
            results.append(partition)

    threads = [threading.Thread(target=sleeper, args=(name,)) for name in ("p", None)]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    creator = session.attach()
    creator.end_session()
    for thread in threads:
        thread.join(timeout=5.0)
        assert not thread.is_alive()
    assert set(results) == {"p", None}
    creator.close()


def test_a_change_is_the_word_or_the_version(store: Store) -> None:
    ns.put(store, "p", DATA)
    seen, version = store.wake_word("p"), store.partition_version("p")
    start = time.monotonic()
    assert not store.wait_change("p", seen, version, 0.15)
    assert time.monotonic() - start >= 0.15
    assert store.wait_change("p", seen, version + 1, 20.0)  # committed, but nobody was woken
    assert store.wait_change("p", seen + 1, version, 20.0)
    assert not store.wait_change("p", seen, version, 0.0)
    threading.Timer(0.3, lambda: ns.put(store, "p", DATA)).start()
    assert store.wait_change("p", seen, version, 20.0)
    with pytest.raises(ValueError):
        store.wait_change("\ud800", seen, version, 0.0)


def test_a_signal_is_seen_during_a_long_wait(session: ns.NativeSession, store: Store) -> None:
    code, output, errors_text = ns.run(
        session,
        "import signal, threading, time"
        "\nthreading.Timer(0.4, lambda: os.kill(os.getpid(), signal.SIGINT)).start()"
        "\nstart = time.monotonic()"
        "\ntry: store.wait_change('p', store.wake_word('p'), store.partition_version('p'), 60.0)"
        "\nexcept KeyboardInterrupt: print('seen after', time.monotonic() - start < 30)",
    )
    assert code == 0, errors_text
    assert "seen after True" in output


def test_holds_of_the_write_lock_are_counted(store: Store) -> None:
    def holds() -> int:
        return sum(count for _, count in store.write_lock_holds())

    before = holds()
    for _ in range(10):
        ns.put(store, "p", DATA)
    assert holds() - before >= 20  # reserve and publish
    times = [nanoseconds for nanoseconds, _ in store.write_lock_holds()]
    assert times == sorted(times)
    assert times[0] > 0


def test_task_lock_excludes_threads_and_processes_and_survives_its_holder(
    session: ns.NativeSession, store: Store
) -> None:
    lock = store.lock_task("p", "actor", 0.1)
    with lock:
        holder = ns.run(
            session,
            "\nfrom transferqueue.errors import TransferTimeoutError"
            "\ntry:\n  store.lock_task('p', 'actor', 0.1).__enter__()"
            "\nexcept TransferTimeoutError as error: print(error)",
        )

        assert str(os.getpid()) in holder[1], holder
        with store.lock_task("p", "critic", 0.1):
            pass
        with pytest.raises(ValueError, match="twice"):
            lock.__enter__()
    with lock:  # free again
        pass
    dead = ns.run(session, "store.lock_task('p', 'actor', 1.0).__enter__(); os.kill(os.getpid(), 9)")
    assert dead[0] == -9
    with store.lock_task("p", "actor", 1.0):
        pass
