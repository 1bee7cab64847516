"""What is refused, as which class, with which facts, and that nothing changes by it."""

from __future__ import annotations

import errno
import os
import resource
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from tests.unit.native import native_session as ns
from transferqueue import _native, errors
from transferqueue._native import COLUMN, DENSE, RAGGED, FieldLayout, Store

DATA = {"a": np.arange(64, dtype=np.int64).reshape(8, 8)}


def test_every_call_after_close(session: ns.NativeSession) -> None:
    store = session.attach()
    indexes = ns.put(store, "p", DATA).indexes
    resolved = store.resolve("p", indexes=indexes)
    reservation = store.reserve(64, 1.0)
    assert not store.closed
    store.close()
    store.close()
    assert store.closed
    calls = [
        lambda: store.reserve(64, 0.0),
        lambda: store.publish("p", count=1),
        lambda: store.resolve("p", indexes=indexes),
        lambda: store.find_keys("p", ["a"]),
        lambda: store.list_rows("p"),
        lambda: store.clear_rows("p", indexes=indexes),
        lambda: store.clear_partition("p"),
        lambda: store.partitions(),
        lambda: store.wake_word(None),
        lambda: store.wait_word("p", 0, 0.0),
        lambda: store.lock_task("p", "t", 0.0).__enter__(),
        lambda: store.stats(),
        lambda: store.clients(),
        lambda: store.reclaim(),
        lambda: store.publish("p", count=1, reservation=reservation),
        lambda: store.owner,
    ]
    for call in calls:
        with pytest.raises(errors.ClosedError) as caught:
            call()
        assert caught.value.session == session.name
    reservation.abandon()
    np.testing.assert_array_equal(ns.copy(resolved, 0, np.int64), DATA["a"].reshape(-1))
    resolved.release()


def test_every_call_after_the_session_ended(session: ns.NativeSession) -> None:
    creator = session.attach()
    indexes = ns.put(creator, "p", DATA).indexes
    resolved = creator.resolve("p", indexes=indexes)
    creator.end_session()
    assert creator.ended
    for call in (
        lambda: creator.stats(),
        lambda: creator.resolve("p", indexes=indexes),
        lambda: creator.reserve(1, None),
    ):
        with pytest.raises(errors.SessionNotFoundError) as caught:
            call()
        assert caught.value.session == session.name
    np.testing.assert_array_equal(ns.copy(resolved, 0, np.int64), DATA["a"].reshape(-1))
    creator.close()
    with pytest.raises(errors.SessionNotFoundError):
        session.attach()


def test_full_store_says_how_full(store: Store) -> None:
    total = ns.stat(store, "total_bytes")
    with pytest.raises(errors.StorageFullError) as caught:
        store.reserve(total + 1, None)  # for ever, but it can never fit
    assert (caught.value.wanted_bytes, caught.value.total_bytes) == (total + 1, total)
    assert isinstance(caught.value, MemoryError)

    block = {"a": np.ones((1, total // 4), np.uint8)}
    kept = [ns.put(store, "p", block).indexes for _ in range(4)]
    view = ns.view(store.resolve("p", indexes=kept[0]))
    store.clear_rows("p", indexes=kept[0])
    start = time.monotonic()
    with pytest.raises(errors.StorageFullError) as caught:
        store.reserve(total // 4, 0.3)
    assert time.monotonic() - start >= 0.3
    full = caught.value
    assert (full.resource, full.wanted_bytes, full.total_bytes) == ("payload", total // 4, total)
    assert (full.used_bytes, full.leased_bytes, full.free_bytes) == (total // 4 * 3, total // 4, 0)
    assert "leased by views" in str(full)
    with pytest.raises(errors.StorageFullError):
        store.reserve(4096, 0.0)
    del view
    assert store.reserve(total // 4, 0.0).nbytes == total // 4


def test_a_writer_waits_until_views_of_another_thread_die(store: Store) -> None:
    total = ns.stat(store, "total_bytes")
    indexes = ns.put(store, "p", {"a": np.ones((1, total), np.uint8)}).indexes
    held = [ns.view(store.resolve("p", indexes=indexes))]
    store.clear_rows("p", indexes=indexes)
    timer = threading.Timer(0.3, held.clear)
    timer.start()
    assert store.reserve(total, 30.0).nbytes == total
    timer.join()


def test_interrupt_ends_a_wait_for_room(store: Store) -> None:
    total = ns.stat(store, "total_bytes")
    ns.put(store, "p", {"a": np.ones((1, total), np.uint8)})

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGINT, interrupted)
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            store.reserve(4096, None)
    finally:
        timer.join()
        signal.signal(signal.SIGINT, previous)
    assert ns.stat(store, "pending_bytes") == 0


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (FieldLayout("", DENSE, 0, 64, 8), "without a name"),
        (FieldLayout("a", DENSE, 8192, 64, 8), "outside the block"),
        (FieldLayout("a", DENSE, 0, 8192, 8), "outside the block"),
        (FieldLayout("a", DENSE, 2**63, 2**63, 8), "outside the block"),
        (FieldLayout("a", DENSE, 0, 56, 8), "8 rows of 8 bytes in 56"),
        (FieldLayout("a", RAGGED, 0, 8, offsets_offset=4096 - 64), "outside the block"),
        (FieldLayout("a", RAGGED, 0, 8, offsets_offset=4), "aligned"),
        (FieldLayout("a", COLUMN, 4090, 10), "outside the block"),
    ],
)
def test_layouts_that_lie_about_their_block(store: Store, field: FieldLayout, message: str) -> None:
    reservation = store.reserve(4096, 1.0)
    with pytest.raises(ValueError, match=message):
        store.publish("p", count=8, reservation=reservation, fields=[field])
    same = FieldLayout("a", DENSE, 0, 64, 8)
    with pytest.raises(ValueError, match="named twice"):
        store.publish("p", count=8, reservation=reservation, fields=[same, same])
    assert store.partitions() == []
    reservation.abandon()
    assert ns.stat(store, "free_bytes") == ns.stat(store, "total_bytes")


def test_bytes_outside_an_extent(store: Store) -> None:
    reservation = store.reserve(4096, 1.0)
    source = np.zeros(8192, np.uint8)
    for offset, nbytes in ((0, 4097), (4096, 1), (2**64 - 1, 2), (1, 2**64 - 1)):
        with pytest.raises(ValueError, match="outside the extent"):
            reservation.copy_in([(offset, source.ctypes.data, nbytes)])
        with pytest.raises(ValueError, match="outside the extent"):
            reservation.writable(offset, nbytes)
    with pytest.raises(ValueError, match="map_for_producer"):
        reservation.producer_tensor(0, 1)


def test_parts_of_an_answer_that_it_does_not_have(store: Store) -> None:
    indexes = ns.put(store, "p", DATA).indexes
    resolved = store.resolve("p", indexes=indexes)
    for read in (
        lambda: resolved.pieces(1),
        lambda: resolved.pieces(-1),
        lambda: resolved.piece_list_id(1),
        lambda: resolved.block_rows(1),
        lambda: resolved.layout(0, 5),
        lambda: resolved.view(0, 0, 1 << 30),
        lambda: resolved.view(7, 0, 1),
        lambda: resolved.view_address(0, 1 << 40),
        lambda: resolved.row_nbytes(0, np.array([[0, 2**60, 0, 0]])),
        lambda: resolved.copy_rows(0, np.array([[0, 9, 0, 0]]), 0, 0),
        lambda: resolved.copy_rows(0, np.array([[0, 1, 3, 0]]), 0, 0),
    ):
        with pytest.raises(ValueError):
            read()
    target = np.zeros(4, np.uint8)
    with pytest.raises(ValueError):
        resolved.copy_rows(0, resolved.pieces(0), target.ctypes.data, target.nbytes)


def test_arguments_of_other_types(store: Store) -> None:
    with pytest.raises(TypeError):
        store.resolve("p", indexes=np.array([0.5]))  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        store.resolve("p", indexes=np.array([1], np.int32))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="pass a list"):
        store.find_keys("p", "abc")
    with pytest.raises(TypeError, match=r"keys\[1\] is a int, not a str"):
        store.find_keys("p", ["a", 3])  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"tags\[0\] is a str, not bytes"):
        store.publish("p", keys=["a"], tags=["x"])  # type: ignore[list-item]
    for rows in ({}, {"keys": ["a"], "indexes": np.array([1])}):
        with pytest.raises(ValueError, match="indexes or keys"):
            store.resolve("p", **rows)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="kind"):
        FieldLayout("a", 3, 0, 0)
    with pytest.raises(ValueError, match="count"):
        store.publish("p", count=-1)
    assert store.partitions() == []


def test_read_only_and_strided_indexes(store: Store) -> None:
    indexes = ns.put(store, "p", DATA).indexes
    frozen = indexes.copy()
    frozen.flags.writeable = False
    assert store.resolve("p", indexes=frozen[::2]).indexes.tolist() == indexes[::2].tolist()
    assert store.resolve("p", indexes=frozen[::-1]).indexes.tolist() == indexes[::-1].tolist()


def test_keys_of_any_text_but_lone_surrogates(store: Store) -> None:
    keys = ["a\0b", "é\U0001f600", "k" * 10_000, " "]
    indexes = store.publish("p", keys=keys).indexes
    assert store.find_keys("p", keys)[1].tolist() == indexes.tolist()
    assert store.list_rows("p").keys == keys
    with pytest.raises(ValueError, match=r"keys\[1\] holds a lone surrogate"):
        store.find_keys("p", ["a", "\ud800"])
    with pytest.raises(ValueError, match="surrogate"):
        store.ensure_partition("\udfff")


def test_an_existing_key_is_refused_when_keys_are_exclusive(store: Store) -> None:
    store.publish("p", keys=["a"])
    with pytest.raises(ValueError):
        store.publish("p", keys=["b", "a"], exclusive_keys=True)
    assert store.find_keys("p", ["b"])[1].tolist() == [-1]


def test_reservation_of_another_store(session: ns.NativeSession, store: Store) -> None:
    with ns.new_session() as elsewhere:
        other = elsewhere.attach()
        reservation = other.reserve(4096, 1.0)
        with pytest.raises(ValueError, match="another store"):
            store.publish("p", count=1, reservation=reservation)
        other.close()


def test_segments_of_another_kind_session_or_version(session: ns.NativeSession) -> None:
    directory = str(session.directory)
    with session.opened() as (control, table, payload):
        with pytest.raises(errors.LayoutMismatchError):
            Store(directory, table, control, payload, session=session.name)
        with pytest.raises((errors.LayoutMismatchError, errors.CorruptSegmentError)):
            Store(directory, control, table, payload, session="another")
        os.pwrite(control, (99).to_bytes(4, "little"), 8)
        with pytest.raises(errors.LayoutMismatchError, match="99"):
            Store(directory, control, table, payload, session=session.name)
        os.pwrite(control, _native.LAYOUT_VERSION.to_bytes(4, "little"), 8)
        Store(directory, control, table, payload, session=session.name).close()
        os.ftruncate(payload, 4096)
        with pytest.raises(errors.CorruptSegmentError):
            Store(directory, control, table, payload, session=session.name)


def test_descriptors_that_are_none(session: ns.NativeSession) -> None:
    with pytest.raises(OSError) as caught:
        Store(str(session.directory), 9999, 9999, 9999, session=session.name)
    assert caught.value.errno == errno.EBADF
    assert str(caught.value).endswith(": Bad file descriptor")


def test_a_view_that_cannot_be_mapped_can_be_copied(store: Store) -> None:
    data = {"a": np.arange(8 * ns.MIB // 8, dtype=np.int64).reshape(8, -1)}
    indexes = ns.put(store, "p", data).indexes

    def child() -> None:
        resolved = store.resolve("p", indexes=indexes)
        ns.copy(resolved, 0, np.int64)  # whatever it allocates lazily is there now
        target = np.zeros(8 * ns.MIB, np.uint8)
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (mapped + 4 * ns.MIB, resource.RLIM_INFINITY))
        with pytest.raises(MemoryError):
            resolved.view(0, 0, 8 * ns.MIB)
        assert resolved.copy_rows(0, resolved.pieces(0), target.ctypes.data, target.nbytes) == target.nbytes
        np.testing.assert_array_equal(target.view(np.int64), data["a"].reshape(-1))
        assert ns.as_tensor(resolved.view(0, 0, 8 * ns.MIB, shared=True)).shape == (8 * ns.MIB,)

    assert ns.exit_status(ns.fork(child)) == 0


def test_sessions_that_are_too_large_for_their_file_system() -> None:
    free = os.statvfs("/dev/shm").f_bavail * os.statvfs("/dev/shm").f_frsize
    with pytest.raises((errors.StorageFullError, OSError)):
        with ns.new_session(index_bytes=2 * free):
            pass
