"""What a process reserved ahead for small puts: whose it is, and that it never gets lost."""

from __future__ import annotations

import contextlib

import numpy as np

from tests.unit.native import native_session as ns
from transferqueue._native import Store
from transferqueue.errors import StorageFullError

ROWS, NBYTES = 41, 640
PUTS = f"""
import numpy as np
from tests.unit.native import native_session as ns
data = np.full((1, {NBYTES}), 7, np.uint8)
def put_small(store):
    fields, nbytes = ns.layouts({{"a": data}})
    reservation = store.reserve(nbytes, 0.0, True)
    ns.fill(reservation, fields, {{"a": data}})
    return store.publish("p", count=1, reservation=reservation, fields=fields)
"""


def put_small(store: Store) -> int:
    data = {"a": np.full((1, NBYTES), 7, np.uint8)}
    fields, nbytes = ns.layouts(data)
    reservation = store.reserve(nbytes, 0.0, ahead=True)
    ns.fill(reservation, fields, data)
    return int(store.publish("p", count=1, reservation=reservation, fields=fields).indexes[0])


def check_rows(store: Store, rows: int) -> None:
    got = ns.get(store, "p", "a", np.uint8, indexes=np.arange(rows))
    assert (got == 7).all()
    assert got.size == rows * NBYTES


def test_a_killed_process_leaves_nothing_reserved(session: ns.NativeSession, store: Store) -> None:
    code = PUTS + f"for _ in range({ROWS}): put_small(store)\nstore.reserve(64, 0.0, True)\nos.kill(os.getpid(), 9)"
    assert ns.run(session, code)[0] == -9
    assert ns.stat(store, "arena_bytes") > 0
    assert len(store.reap()) == 1
    assert ns.stat(store, "arena_bytes") == ns.stat(store, "pending_bytes") == 0
    check_rows(store, ROWS)


def test_a_process_that_ends_gives_back_what_it_did_not_use(session: ns.NativeSession, store: Store) -> None:
    code = PUTS + f"for _ in range({ROWS}): put_small(store)\nprint(store.stats()['arena_bytes'])\nstore.close()"
    status, output, errors_text = ns.run(session, code)
    assert status == 0, errors_text
    assert int(output) > 0
    assert ns.stat(store, "arena_bytes") == 0
    check_rows(store, ROWS)


def test_a_forked_child_does_not_put_into_what_its_parent_reserved(store: Store) -> None:
    for _ in range(ROWS):
        put_small(store)
    ahead = ns.stat(store, "arena_bytes")
    assert ahead > 0

    def child() -> None:
        put_small(store)
        assert ns.stat(store, "arena_bytes") == ahead  # one alone: nothing ahead of it
        for _ in range(ROWS - 1):
            put_small(store)

    assert ns.exit_status(ns.fork(child)) == 0
    for _ in range(ROWS):
        put_small(store)
    check_rows(store, 3 * ROWS)


def test_what_is_reserved_ahead_is_used_before_a_put_is_refused(session: ns.NativeSession, store: Store) -> None:
    for _ in range(ROWS):
        put_small(store)
    assert ns.stat(store, "arena_bytes") > 0
    held = []
    for nbytes in (ns.MIB, ns.MIB // 16, 4096, 64):
        with contextlib.suppress(StorageFullError):
            while True:
                held.append(store.reserve(nbytes, 0.0))
    assert ns.stat(store, "arena_bytes") == 0
    assert ns.stat(store, "free_bytes") == 0
