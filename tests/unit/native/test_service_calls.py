"""What the storage service and `tq stats` ask of the core: growth, population, trimming, clients, sizes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.unit.native import native_session as ns
from transferqueue._native import Store
from transferqueue.errors import StorageFullError


def resident_bytes(session: ns.NativeSession) -> int:
    return os.stat(f"/dev/shm/{session.stem}.dat").st_blocks * 512


def test_stats_have_the_documented_names_and_add_up(store: Store) -> None:
    names = {
        *("total_bytes", "used_bytes", "live_bytes", "free_bytes", "leased_bytes", "pending_bytes", "arena_bytes"),
        *(
            "retired_bytes",
            "warm_bytes",
            "huge_bytes",
            "gather_pool_bytes",
            "spilled_bytes",
            "puts",
            "gets",
            "index_used_bytes",
            "index_total_bytes",
        ),
        *("rows", "reserved_bytes", "free_extent_bytes"),
    }
    data = {"a": np.ones((4, 65536), np.uint8)}
    indexes = ns.put(store, "p", data).indexes
    ns.put(store, "p", {"a": data["a"][:1]}, indexes=indexes[:1])
    ns.get(store, "p", "a", np.uint8, indexes=indexes)
    pending = store.reserve(65536, 1.0)
    stats = store.stats()
    assert set(stats) == names
    assert (stats["puts"], stats["gets"], stats["rows"]) == (2, 1, 4)
    assert stats["used_bytes"] == 5 * 65536
    assert stats["live_bytes"] == 4 * 65536  # a quarter of the first block was overwritten
    assert stats["pending_bytes"] == pending.nbytes == 65536
    assert stats["used_bytes"] + stats["free_bytes"] + stats["pending_bytes"] == stats["total_bytes"] == 32 * ns.MIB
    assert 0 < stats["index_used_bytes"] <= stats["index_total_bytes"]


def test_the_segment_grows_in_steps(session: ns.NativeSession, store: Store) -> None:
    assert resident_bytes(session) < ns.MIB
    ns.put(store, "p", {"a": np.ones((1, ns.MIB), np.uint8)})
    assert ns.stat(store, "reserved_bytes") == 4 * ns.MIB
    for _ in range(3):
        ns.put(store, "p", {"a": np.ones((1, ns.MIB), np.uint8)})
    assert ns.stat(store, "reserved_bytes") == 4 * ns.MIB
    ns.put(store, "p", {"a": np.ones((1, 9 * ns.MIB), np.uint8)})
    assert 13 * ns.MIB <= ns.stat(store, "reserved_bytes") < 32 * ns.MIB


def test_populate_and_trim(session: ns.NativeSession, store: Store) -> None:
    assert store.populate(6 * ns.MIB) >= 6 * ns.MIB
    assert resident_bytes(session) >= 6 * ns.MIB
    assert ns.stat(store, "warm_bytes") == 6 * ns.MIB
    data = {"a": np.random.default_rng(0).integers(0, 255, (4, ns.MIB), np.uint8)}
    indexes = ns.put(store, "p", data).indexes
    assert ns.stat(store, "warm_bytes") == 2 * ns.MIB
    free_before = resident_bytes(session)
    assert store.trim() > 0
    assert resident_bytes(session) < free_before
    assert resident_bytes(session) < 5 * ns.MIB  # the rows stay
    assert store.trim() >= 0
    np.testing.assert_array_equal(ns.get(store, "p", "a", np.uint8, indexes=indexes), data["a"].reshape(-1))
    ns.write_over_free_space(store)  # trimmed space is backed again before it is written
    assert resident_bytes(session) >= 32 * ns.MIB
    np.testing.assert_array_equal(ns.get(store, "p", "a", np.uint8, indexes=indexes), data["a"].reshape(-1))
    store.clear_partition("junk")
    assert store.populate(1 << 40) >= 0  # more than there is
    assert ns.stat(store, "reserved_bytes") == 32 * ns.MIB


def test_clients_are_told_apart(session: ns.NativeSession, store: Store) -> None:
    indexes = ns.put(store, "p", {"a": np.ones((1, ns.MIB), np.uint8)}).indexes
    resolved = store.resolve("p", indexes=indexes)
    again = store.resolve("p", indexes=indexes)
    other = ns.start(session, "r = store.reserve(8192, 1.0); print(store.owner, flush=True); input()")
    assert other.stdout is not None
    owner = int(other.stdout.readline())
    clients = {client["owner"]: client for client in store.clients()}
    assert set(clients) == {store.owner, owner}
    ours, theirs = clients[store.owner], clients[owner]
    assert (ours["pid"], ours["alive"], ours["leases"], ours["leased_bytes"]) == (os.getpid(), True, 2, ns.MIB)
    assert (theirs["pid"], theirs["alive"], theirs["leases"]) == (other.pid, True, 0)
    assert theirs["pending_bytes"] == 8192
    assert ours["start_time_s"] > 0
    assert ours["age_s"] >= theirs["age_s"] >= 0
    other.communicate("\n", timeout=30)
    store.reclaim()
    assert [client["owner"] for client in store.clients()] == [store.owner]
    again.release()
    resolved.release()


def test_partition_stats(store: Store) -> None:
    ns.put(store, "a", {"x": np.ones((4, 65536), np.uint8)}, keys=list("wxyz"))
    store.publish("b", count=3)
    stats = {row["name"]: row for row in store.partition_stats()}
    assert {name: (row["rows"], row["keyed_rows"]) for name, row in stats.items()} == {"a": (4, 4), "b": (3, 0)}
    assert stats["a"]["live_bytes"] == 4 * 65536


@pytest.fixture
def small_file_system(tmp_path: Path) -> Iterator[Path]:
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(tmp_path)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("a file system of 8 MiB needs the right to mount one")
    yield tmp_path
    subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def test_a_file_system_that_ends_before_the_segment(session: ns.NativeSession, small_file_system: Path) -> None:
    """No SIGBUS, no half put: the error of a full store, and what fits still fits."""
    path = small_file_system / "payload"
    directory = session.directory / "other"
    directory.mkdir()
    with session.opened() as (control, table, _), open(path, "w+b") as payload:
        os.ftruncate(control, 0)
        os.ftruncate(table, 0)
        Store.format(
            str(directory),
            control,
            table,
            payload.fileno(),
            session=session.name,
            payload_bytes=32 * ns.MIB,
            index_bytes=8 * ns.MIB,
            step_bytes=3 * ns.MIB,
        )
        store = Store(str(directory), control, table, payload.fileno(), session=session.name)
    with pytest.raises(StorageFullError):
        store.reserve(9 * ns.MIB, 0.0)
    kept: list[np.ndarray] = []

    def put_one() -> None:
        data = {"a": np.full((1, ns.MIB), len(kept), np.uint8)}
        kept.append(ns.put(store, "p", data, timeout_s=0.0).indexes)

    for _ in range(7):
        put_one()
    with pytest.raises(StorageFullError):
        put_one()
    assert len(kept) == 7
    for number, indexes in enumerate(kept):
        assert (ns.get(store, "p", "a", np.uint8, indexes=indexes) == number).all()
    store.clear_partition("p")
    assert store.reserve(7 * ns.MIB, 0.0).nbytes == 7 * ns.MIB
    store.close()
