"""One store, many threads: every get is one version of every row, and no space is lost."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

import numpy as np

from tests.support.threads import run_together
from tests.unit.native import native_session as ns
from transferqueue._native import Store
from transferqueue.errors import StaleMetadataError

ROUNDS = 40


def test_eight_threads_of_different_types_and_sizes(store: Store) -> None:
    def worker(seed: int) -> Callable[[], None]:
        def work() -> None:
            rng = np.random.default_rng(seed)
            dtype = [np.int64, np.float32, np.int8, np.float64][seed % 4]
            for number in range(ROUNDS):
                data = rng.integers(0, 100, (int(rng.integers(1, 9)), int(rng.integers(1, 20000)))).astype(dtype)
                partition = f"p{seed}" if number % 2 else "shared"
                indexes = ns.put(store, partition, {"a": data}).indexes
                got = ns.get(store, partition, "a", dtype, indexes=indexes)
                np.testing.assert_array_equal(got.reshape(data.shape), data)
                resolved = store.resolve(partition, indexes=indexes)
                view = ns.view(resolved)
                assert store.clear_rows(partition, indexes=indexes) == len(data)
                np.testing.assert_array_equal(view.numpy().view(dtype).reshape(data.shape), data)

        return work

    run_together(*[worker(seed) for seed in range(8)])
    store.reclaim()
    assert ns.stat(store, "free_bytes") == ns.stat(store, "total_bytes")


def test_readers_of_rows_that_are_overwritten_all_the_time(store: Store) -> None:
    keys = [f"k{i}" for i in range(16)]

    def version(number: int) -> dict[str, np.ndarray]:
        return {name: np.full((16, 2048), number, np.int64) for name in "ab"}

    ns.put(store, "p", version(0), keys=keys)
    done = threading.Event()

    def write() -> None:
        try:
            for number in range(1, 4 * ROUNDS):
                ns.put(store, "p", version(number), keys=keys)
        finally:
            done.set()

    def read() -> None:
        last = 0
        while not done.is_set():
            resolved = store.resolve("p", keys=keys)
            values = np.unique(np.concatenate([ns.copy(resolved, field, np.int64) for field in range(2)]))
            assert len(values) == 1  # whole, and both fields of one snapshot
            assert values[0] >= last
            last = int(values[0])
            view = ns.view(resolved)
            resolved.release()
            assert (view.numpy().view(np.int64) == last).all()

    run_together(write, read, read, read)


def test_clears_beside_readers_and_writers(store: Store) -> None:
    indexes = ns.put(store, "p", {"a": np.arange(64, dtype=np.int64).reshape(64, 1)}).indexes
    done = threading.Event()

    def clear() -> None:
        try:
            for index in indexes:
                assert store.clear_rows("p", indexes=np.array([index])) == 1
        finally:
            done.set()

    def read() -> None:
        while not done.is_set():
            resolved = store.resolve("p", indexes=indexes)
            gone = set(resolved.gone.tolist())
            alive = [i for i in range(64) if i not in gone]
            if alive:
                assert ns.copy(resolved, 0, np.int64).tolist() == alive

    def write() -> None:
        while not done.is_set():
            # Until the first clear it may succeed.
            with contextlib.suppress(StaleMetadataError):
                ns.put(store, "p", {"b": np.zeros((64, 1), np.int64)}, indexes=indexes)

    run_together(clear, read, read, write)
    assert store.list_rows("p").indexes.tolist() == []
    store.reclaim()
    assert ns.stat(store, "free_bytes") == ns.stat(store, "total_bytes")
