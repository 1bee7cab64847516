"""kill -9 at named points: what the dead left is given back to the byte, and every row is whole."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable

import numpy as np
import pytest

from tests.unit.native import native_session as ns
from transferqueue import _native
from transferqueue._native import DENSE, FieldLayout, Store

ROWS, WIDTH = 8, 16384
KEYS = [f"uid-{i}" for i in range(ROWS)]


def version(number: int) -> dict[str, np.ndarray]:
    return {name: np.full((ROWS, WIDTH), number, np.int64) for name in ("a", "b")}


def overwrite(store: Store) -> None:
    ns.put(store, "p", version(2), keys=KEYS)


def read(store: Store) -> None:
    resolved = store.resolve("p", keys=KEYS)
    capsule = resolved.view(0, 0, 4096)
    ns.copy(resolved, 0, np.int64)
    del capsule
    resolved.release()


def clear(store: Store) -> None:
    store.clear_rows("p", keys=KEYS)


def clear_partition(store: Store) -> None:
    store.clear_partition("p")


def produce_in_place(store: Store) -> None:
    nbytes = ROWS * WIDTH * 8
    reservation = store.reserve(2 * nbytes, 1.0)
    reservation.map_for_producer()
    capsules = [reservation.producer_tensor(offset, nbytes) for offset in (0, nbytes)]
    fields = [FieldLayout(name, DENSE, i * nbytes, nbytes, WIDTH * 8) for i, name in enumerate("ab")]
    ns.fill(reservation, fields, version(2))
    store.publish("p", keys=KEYS, reservation=reservation, fields=fields)
    del capsules


def grow(store: Store) -> None:
    store.reserve(ns.stat(store, "free_bytes"), 1.0)


POINTS: list[tuple[str, Callable[[Store], None]]] = [
    *[
        (point, overwrite)
        for point in (
            "index.reserve.before_commit",
            "put.after_copy",
            "put.before_publish",
            "write_gate.entered",
            "index.publish.before_commit",
            "index.publish.after_commit",
            "put.after_commit_before_wake",
            "retire.after_commit",
            "retire.before_scan",
            "retire.after_word",
            "index.free.before_commit",
        )
    ],
    *[
        (point, read)
        for point in (
            "get.after_resolve",
            "lease.before_store",
            "lease.before_recheck",
            "get.after_lease",
            "view.before_map",
            "copy.midway",
            "view.before_unmap",
            "view.unmapped",
            "lease.before_release",
        )
    ],
    ("producer.before_seal", produce_in_place),
    ("producer.sealed", produce_in_place),
    ("index.publish.before_commit", produce_in_place),
    ("payload.before_grow", grow),
    ("retire.after_commit", clear),
    ("retire.after_word", clear_partition),
]


def die_at(store: Store, point: str, work: Callable[[Store], None], after: int = 0) -> int:
    def child() -> None:
        _native.arm_pause(point, "kill", after=after)
        work(store)

    return ns.exit_status(ns.fork(child))


def check_whole(store: Store, allowed: set[int]) -> int:
    """All rows and fields are of one version."""
    resolved = store.resolve("p", keys=KEYS)
    values = {int(value) for field in range(2) for value in np.unique(ns.copy(resolved, field, np.int64))}
    assert len(values) == 1
    assert values <= allowed
    return values.pop()


def check_space(session: ns.NativeSession, store: Store) -> None:
    """Nothing is lost: after a clear every byte is free, and usable in one piece."""
    store.clear_partition("p")
    store.reclaim()
    stats = store.stats()
    assert (stats["pending_bytes"], stats["retired_bytes"], stats["used_bytes"]) == (0, 0, 0)
    assert stats["leased_bytes"] == 0
    assert stats["rows"] == 0
    assert [client["owner"] for client in store.clients()] == [store.owner]
    assert session.lease_files() == [f"{store.owner}.lease"]
    whole = store.reserve(stats["total_bytes"], 0.0)
    assert whole.nbytes == stats["total_bytes"]
    whole.abandon()


@pytest.mark.parametrize(("point", "work"), POINTS, ids=[f"{point}-{work.__name__}" for point, work in POINTS])
def test_death_at(session: ns.NativeSession, store: Store, point: str, work: Callable[[Store], None]) -> None:
    ns.put(store, "p", version(1), keys=KEYS)
    used = ns.stat(store, "used_bytes")
    assert die_at(store, point, work) == -signal.SIGKILL
    store.reclaim()
    stats = store.stats()
    assert (stats["pending_bytes"], stats["retired_bytes"]) == (0, 0)
    if work not in (clear, clear_partition):
        assert stats["used_bytes"] == used
        check_whole(store, {1, 2})
        ns.put(store, "p", version(3), keys=KEYS)
        assert check_whole(store, {3}) == 3
    check_space(session, store)


def test_reap_names_the_dead_and_gives_back_what_they_reserved(session: ns.NativeSession, store: Store) -> None:
    pid = ns.fork(lambda: die_in_the_middle(store))
    assert ns.exit_status(pid) == -signal.SIGKILL
    dead = [client for client in store.clients() if not client["alive"]]
    assert [(client["pid"], client["pending_bytes"]) for client in dead] == [(pid, 2 * ROWS * WIDTH * 8)]
    assert store.reap() == [(dead[0]["owner"], pid)]
    assert ns.stat(store, "pending_bytes") == 0
    assert store.reap() == []
    check_space(session, store)


def die_in_the_middle(store: Store) -> None:
    _native.arm_pause("put.after_copy", "kill")
    overwrite(store)


def test_blocks_leased_by_the_dead_are_free(session: ns.NativeSession, store: Store) -> None:
    ns.put(store, "p", version(1), keys=KEYS)

    def hold_and_die() -> None:
        resolved = store.resolve("p", keys=KEYS)
        _native.arm_pause("put.after_copy", "kill")
        overwrite(store)
        resolved.release()

    assert ns.exit_status(ns.fork(hold_and_die)) == -signal.SIGKILL
    assert ns.stat(store, "leased_bytes") == 0
    check_space(session, store)


def test_forty_deaths_at_any_point(session: ns.NativeSession, store: Store) -> None:
    rng = random.Random(0)
    ns.put(store, "p", version(1), keys=KEYS)
    for _ in range(40):
        point, work = rng.choice([entry for entry in POINTS if entry[1] not in (clear, clear_partition)])
        status = die_at(store, point, work, after=rng.randrange(2))
        assert status in (0, -signal.SIGKILL)
        check_whole(store, {1, 2})
    check_space(session, store)
