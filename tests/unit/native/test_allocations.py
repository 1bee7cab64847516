"""Writing in place: what a producer may do to its tensors before and after commit and abort, and to whom it shows."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import torch

from tests.unit.native import native_session as ns
from transferqueue._native import DENSE, FieldLayout, Reservation, Store
from transferqueue.errors import StaleMetadataError

NBYTES = 1 << 20
ROWS = 16
LAYOUT = [FieldLayout("a", DENSE, 0, NBYTES, NBYTES // ROWS)]


def allocate(store: Store, nbytes: int = NBYTES) -> tuple[Reservation, torch.Tensor]:
    reservation = store.reserve(nbytes, 1.0)
    reservation.map_for_producer()
    return reservation, ns.as_tensor(reservation.producer_tensor(0, nbytes))


def stored(store: Store, indexes: np.ndarray) -> np.ndarray:
    return ns.get(store, "p", "a", np.uint8, indexes=indexes)


def test_commit_without_live_tensors_publishes_what_was_written(store: Store) -> None:
    reservation, tensor = allocate(store)
    assert reservation.producer_tensors_alive() == 1
    tensor.fill_(7)
    half = tensor[: NBYTES // 2]
    del tensor
    assert reservation.producer_tensors_alive() == 1  # a view of the tensor is the tensor
    half.fill_(8)
    del half
    assert reservation.producer_tensors_alive() == 0
    indexes = store.publish("p", count=ROWS, reservation=reservation, fields=LAYOUT).indexes
    got = stored(store, indexes)
    assert (got[: NBYTES // 2] == 8).all()
    assert (got[NBYTES // 2 :] == 7).all()


def test_live_tensors_cannot_reach_the_store_after_commit(store: Store) -> None:
    reservation, tensor = allocate(store)
    tensor.fill_(7)
    address = tensor.data_ptr()
    indexes = store.publish("p", count=ROWS, reservation=reservation, fields=LAYOUT).indexes
    assert tensor.data_ptr() == address
    assert (tensor == 7).all()
    tensor[: NBYTES // 2] = 99
    assert (stored(store, indexes) == 7).all()
    view = ns.view(store.resolve("p", indexes=indexes))
    view.fill_(5)
    assert (tensor[: NBYTES // 2] == 99).all()
    assert (tensor[NBYTES // 2 :] == 7).all()


def test_live_tensors_lease_the_block_after_commit(store: Store) -> None:
    reservation, tensor = allocate(store)
    tensor.fill_(7)
    indexes = store.publish("p", count=ROWS, reservation=reservation, fields=LAYOUT).indexes
    del reservation
    store.clear_rows("p", indexes=indexes)
    assert store.reclaim() == 0
    for _ in range(40):  # more than the segment holds in one
        other = ns.put(store, "q", {"a": np.full((1, NBYTES), 1, np.uint8)})
        store.clear_rows("q", indexes=other.indexes)
    assert (tensor == 7).all()
    del tensor
    assert store.reclaim() == NBYTES


def test_abort_without_live_tensors_gives_the_space_back_now(store: Store) -> None:
    reservation, tensor = allocate(store)
    del tensor
    reservation.abandon()
    assert ns.stat(store, "pending_bytes") == 0
    reservation.abandon()  # again: nothing
    with pytest.raises(ValueError, match="given back"):
        store.publish("p", count=ROWS, reservation=reservation, fields=LAYOUT)
    assert store.partitions() == []


def test_aborted_extent_is_not_reused_until_its_tensors_die(store: Store) -> None:
    reservation, tensor = allocate(store)
    offset = reservation.offset
    reservation.abandon()
    assert ns.stat(store, "pending_bytes") == NBYTES
    others = []
    while ns.stat(store, "free_bytes") >= NBYTES:
        others.append(store.reserve(NBYTES, 0.0))
        assert others[-1].offset != offset
        source = np.full(NBYTES, 3, np.uint8)
        others[-1].copy_in([(0, source.ctypes.data, NBYTES)])
    tensor.fill_(9)  # still the producer's own memory
    del tensor
    last = store.reserve(NBYTES, 0.0)
    assert last.offset == offset
    for other in others:
        other.abandon()


def test_dropped_reservation_is_given_back_at_the_next_call(store: Store) -> None:
    reservation = store.reserve(NBYTES, 1.0)
    assert ns.stat(store, "pending_bytes") == NBYTES
    del reservation
    assert ns.stat(store, "pending_bytes") == 0
    reservation, tensor = allocate(store)
    del reservation
    assert ns.stat(store, "pending_bytes") == NBYTES  # its tensor lives
    del tensor
    assert ns.stat(store, "pending_bytes") == 0


def test_deleters_inside_the_garbage_collector(store: Store) -> None:
    class Node:
        held: object
        myself: Node

    def cycle(held: object) -> None:
        node = Node()
        node.held, node.myself = held, node

    data = np.arange(NBYTES // 8, dtype=np.int64).reshape(ROWS, -1)
    indexes = ns.put(store, "p", {"a": data}).indexes
    gc.collect()
    gc.disable()
    try:
        cycle(ns.view(store.resolve("p", indexes=indexes)))
        cycle(allocate(store))
        cycle(store.reserve(NBYTES, 1.0))
        assert ns.stat(store, "leased_bytes") == NBYTES
        assert ns.stat(store, "pending_bytes") == 2 * NBYTES
        gc.collect()
    finally:
        gc.enable()
    assert ns.stat(store, "leased_bytes") == 0
    assert ns.stat(store, "pending_bytes") == 0


def test_failed_commit_can_be_retried_and_what_the_producer_writes_since_is_not_in_it(store: Store) -> None:
    reservation, tensor = allocate(store)
    tensor.fill_(7)
    with pytest.raises(StaleMetadataError):
        store.publish("p", indexes=np.arange(10**12, 10**12 + ROWS), reservation=reservation, fields=LAYOUT)
    tensor.fill_(8)  # cut off by the first try
    indexes = store.publish("p", count=ROWS, reservation=reservation, fields=LAYOUT).indexes
    assert (stored(store, indexes) == 7).all()
    assert (tensor == 8).all()


def test_close_with_live_tensors_leaves_them_usable_and_the_space_to_the_reaper(session: ns.NativeSession) -> None:
    store = session.attach()
    reservation, tensor = allocate(store)
    store.close()
    del reservation
    tensor.fill_(4)
    assert (tensor == 4).all()
    code = "print(store.reap(), store.stats()['pending_bytes'])"
    assert ns.run(session, code)[1].split()[-1] == str(NBYTES)  # we live: not reaped
    del tensor
    assert session.lease_files() == []
    assert ns.run(session, code)[1].split()[-1] == "0"


def test_small_allocations_share_pages_and_stay_apart(store: Store) -> None:
    made = []
    for value in range(20):
        reservation, tensor = allocate(store, 64)
        tensor.fill_(value)
        made.append((reservation, tensor, value))
    published = []
    for reservation, tensor, value in made:
        fields = [FieldLayout("a", DENSE, 0, 64, 64)]
        published.append((store.publish("p", count=1, reservation=reservation, fields=fields).indexes, tensor, value))
    for _, tensor, _ in published:
        tensor.fill_(200)
    for indexes, _, value in published:
        assert (stored(store, indexes) == value).all()
