"""What the storage service and `tq stats` ask of the core: growth, population, trimming, clients, sizes."""

from __future__ import annotations

import os
import signal
import subprocess
import time
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
            "spilled_live_bytes",
            "spill_total_bytes",
            "spill_free_bytes",
            "spill_pending_bytes",
            "spill_retired_bytes",
            "spill_reserved_bytes",
            "spill_free_extent_bytes",
            "largest_free_extent_bytes",
            "free_extents",
            "headroom_used_bytes",
            "puts",
            "gets",
            "index_used_bytes",
            "index_total_bytes",
        ),
        *("rows", "reserved_bytes", "free_extent_bytes"),
        *("oldest_read_pid", "oldest_read_age_s", "oldest_read_commits"),
    }
    data = {"a": np.ones((4, 65536), np.uint8)}
    indexes = ns.put(store, "p", data).indexes
    ns.put(store, "p", {"a": data["a"][:1]}, indexes=indexes[:1])
    store.resolve("p", indexes=indexes).release()  # a look
    store.resolve("p", indexes=indexes).finish()
    pending = store.reserve(65536, 1.0)
    stats = store.stats()
    assert set(stats) == names
    assert (stats["puts"], stats["gets"], stats["rows"]) == (2, 1, 4)
    assert stats["used_bytes"] == 5 * 65536
    assert stats["live_bytes"] == 4 * 65536  # a quarter of the first block was overwritten
    assert stats["pending_bytes"] == pending.nbytes == 65536
    assert stats["used_bytes"] + stats["free_bytes"] + stats["pending_bytes"] == stats["total_bytes"] == 32 * ns.MIB
    assert 0 < stats["index_used_bytes"] <= stats["index_total_bytes"]


def test_calls_are_counted_with_what_they_took(store: Store) -> None:
    indexes = ns.put(store, "p", {"a": np.ones((4, 100), np.uint8)}).indexes
    store.publish("p", count=3)
    resolved = store.resolve("p", indexes=indexes)
    resolved.count(300, 100)
    resolved.finish()
    store.count_sent(pulled=50)
    store.count_sent(pulled=10, served=7)
    store.count_wait(0.25, for_room=False, timed_out=False)
    store.count_wait(3.0, for_room=True, timed_out=True)
    assert store.counts() == {
        "put_rows": 7,
        "put_bytes": 400,
        "get_rows": 4,
        "get_viewed_bytes": 300,
        "get_copied_bytes": 100,
        "data_timeouts": 0,
        "room_timeouts": 1,
        "reaped_clients": 0,
        "coalesced_blocks": 0,
        "coalesced_bytes": 0,
        "spilled_blocks": 0,
        "spilled_bytes": 0,
        "limit_waits": 0,
        "limit_refusals": 0,
        "shed_rows": 0,
        "compacted_blocks": 0,
        "compacted_bytes": 0,
        "pulled_bytes": 60,
        "served_bytes": 7,
    }
    latencies = store.latencies()
    assert set(latencies) == {"put", "get", "data_wait", "room_wait", "lock_wait", "lock_hold"}
    counts = {name: sum(count for _, count in classes) for name, (_, classes) in latencies.items()}
    assert (counts["put"], counts["get"], counts["data_wait"], counts["room_wait"]) == (2, 1, 1, 1)
    assert counts["lock_hold"] == counts["lock_wait"] >= 3  # two publications, a reservation
    sum_ns, classes = latencies["data_wait"]
    assert sum_ns == 250_000_000
    (end_ns,) = (end for end, count in classes if count)
    assert 250_000_000 < end_ns <= 1.5 * 250_000_000
    assert classes[-1][0] == 0


def test_what_a_producer_computes_in_place_is_no_time_of_the_put(store: Store) -> None:
    reservation = store.reserve(4096, 1.0)
    reservation.map_for_producer()
    time.sleep(0.05)
    store.publish("p", count=1, reservation=reservation, fields=[ns.FieldLayout("a", ns.DENSE, 0, 4096, 4096)])
    sum_ns, _ = store.latencies()["put"]
    assert 0 < sum_ns < 50_000_000


def test_methods_are_counted_by_name(store: Store) -> None:
    for failed in (False, True):
        store.count_method(
            "Äctor.update",
            rows=4,
            get_s=0.5,
            run_s=1.0,
            put_s=0.25,
            viewed_bytes=10,
            copied_bytes=20,
            failed=failed,
        )
    assert store.methods() == [
        {
            "name": "Äctor.update",
            "calls": 2,
            "failures": 1,
            "rows": 8,
            "get_ns": 1_000_000_000,
            "run_ns": 2_000_000_000,
            "put_ns": 500_000_000,
            "viewed_bytes": 20,
            "copied_bytes": 40,
        }
    ]


def test_the_census_tells_rows_by_what_they_have(store: Store) -> None:
    assert store.census() == []
    first = ns.put(store, "a", {"x": np.ones((4, 8), np.uint8)}).indexes
    ns.put(store, "a", {"y": np.ones((2, 8), np.uint8)}, indexes=first[:2])
    store.publish("a", count=3)
    store.publish("b", count=2)
    snapshot = store.task_snapshot("a", "train", ["x"])
    assert store.task_commit("a", "train", snapshot.task_version, ["x"], first[:3], b"")
    consumed = {"name": "a", "ready": 2, "partial": 2, "empty": 3, "consumed": {"train": 3}}
    assert store.census() == [consumed, {"name": "b", "ready": 0, "partial": 0, "empty": 2, "consumed": {}}]
    store.clear_rows("a", indexes=first[:1])
    (cleared, _) = store.census()
    assert cleared == {**consumed, "ready": 1}


def test_counts_of_the_killed_and_of_forked_children_stay(session: ns.NativeSession, store: Store) -> None:
    code = "ns.put(store, 'p', {'a': np.ones((5, 8), np.uint8)}); os.kill(os.getpid(), signal.SIGKILL)"
    assert ns.start(session, f"import os, signal\n{code}").wait(30) == -signal.SIGKILL
    child = os.fork()
    if child == 0:
        ns.put(store, "p", {"a": np.ones((7, 8), np.uint8)})
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert store.counts()["put_rows"] == 12
    assert [pid for _, pid in store.reap()]
    assert store.counts()["reaped_clients"] >= 1
    assert store.counts()["put_rows"] == 12
    assert store.stats()["puts"] == 2


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
