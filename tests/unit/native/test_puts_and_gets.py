"""Raw puts and gets: bytes, atomicity, what two readers see of each other."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.unit.native import native_session as ns
from transferqueue import errors
from transferqueue._native import COLUMN, RAGGED, FieldLayout, Store


def rows(n: int = 64, width: int = 512, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1 << 40, (n, width), dtype=np.int64)


def test_round_trip_by_index_and_by_key(store: Store) -> None:
    first, second = rows(seed=1), rows(width=8, seed=2)
    keys = [f"uid-{i}" for i in range(64)]
    result = ns.put(store, "train", {"a": first, "b": second}, keys=keys)
    assert result.indexes.dtype == np.int64
    assert len(set(result.indexes.tolist())) == 64

    by_key = store.resolve("train", keys=keys[::-1])
    assert by_key.fields == ["a", "b"]
    assert by_key.indexes.tolist() == result.indexes[::-1].tolist()
    np.testing.assert_array_equal(ns.copy(by_key, 0, np.int64).reshape(64, 512), first[::-1])
    np.testing.assert_array_equal(ns.copy(by_key, 1, np.int64).reshape(64, 8), second[::-1])

    chosen = result.indexes[[5, 3, 3, 60]]
    got = ns.get(store, "train", "a", np.int64, indexes=chosen).reshape(4, 512)
    np.testing.assert_array_equal(got, first[[5, 3, 3, 60]])


def test_a_view_spans_its_bytes_only_and_two_gets_are_independent(store: Store) -> None:
    data = rows()
    indexes = ns.put(store, "p", {"a": data}).indexes
    first = ns.view(store.resolve("p", indexes=indexes))
    second = ns.view(store.resolve("p", indexes=indexes))
    assert first.dtype == torch.uint8
    assert first.untyped_storage().nbytes() == data.nbytes
    first += 1
    np.testing.assert_array_equal(second.numpy().view(np.int64).reshape(data.shape), data)
    np.testing.assert_array_equal(ns.get(store, "p", "a", np.int64, indexes=indexes).reshape(data.shape), data)
    third = ns.view(store.resolve("p", indexes=indexes))
    np.testing.assert_array_equal(third.numpy().view(np.int64).reshape(data.shape), data)
    np.testing.assert_array_equal(first.numpy(), data.view(np.uint8).reshape(-1) + 1)


def test_a_slice_of_rows_is_a_view_of_those_rows(store: Store) -> None:
    data = rows()
    indexes = ns.put(store, "p", {"a": data}).indexes
    resolved = store.resolve("p", indexes=indexes[10:20])
    tensor = ns.view(resolved)
    assert tensor.untyped_storage().nbytes() == data[10:20].nbytes
    np.testing.assert_array_equal(tensor.numpy().view(np.int64).reshape(10, 512), data[10:20])


def test_shared_view_is_read_from_the_same_pages(store: Store) -> None:
    data = rows()
    indexes = ns.put(store, "p", {"a": data}).indexes
    resolved = store.resolve("p", indexes=indexes)
    tensor = ns.view(resolved, shared=True)
    np.testing.assert_array_equal(tensor.numpy().view(np.int64).reshape(data.shape), data)
    [[_, _, block, _]] = resolved.pieces(0)
    assert tensor.data_ptr() == resolved.view_address(int(block), 0)


def test_view_survives_clear_and_overwrite_and_the_end_of_everything(session: ns.NativeSession) -> None:
    store = session.attach()
    data, newer = rows(seed=1), rows(seed=2)
    indexes = ns.put(store, "p", {"a": data}).indexes
    tensor = ns.view(store.resolve("p", indexes=indexes))
    ns.put(store, "p", {"a": newer}, indexes=indexes)
    np.testing.assert_array_equal(tensor.numpy().view(np.int64).reshape(data.shape), data)
    np.testing.assert_array_equal(ns.get(store, "p", "a", np.int64, indexes=indexes).reshape(data.shape), newer)
    assert store.clear_rows("p", indexes=indexes) == 64
    for seed in range(20):  # whatever space is free is written over
        ns.put(store, "q", {"a": rows(n=512, seed=seed)})
        store.clear_partition("q")
    np.testing.assert_array_equal(tensor.numpy().view(np.int64).reshape(data.shape), data)
    store.close()
    np.testing.assert_array_equal(tensor.numpy().view(np.int64).reshape(data.shape), data)
    del tensor
    assert session.lease_files() == []


def test_space_returns_only_when_the_last_lease_dies(store: Store) -> None:
    data = rows()
    free = ns.stat(store, "free_bytes")
    indexes = ns.put(store, "p", {"a": data, "b": data}).indexes
    used = ns.stat(store, "used_bytes")
    assert used == 2 * data.nbytes
    resolved = store.resolve("p", indexes=indexes)
    first, second = ns.view(resolved, 0), ns.view(resolved, 1)
    assert ns.stat(store, "leased_bytes") == used
    store.clear_rows("p", indexes=indexes)
    assert (ns.stat(store, "used_bytes"), ns.stat(store, "retired_bytes")) == (0, used)
    assert store.reclaim() == 0
    resolved.release()
    del first
    assert store.reclaim() == 0
    np.testing.assert_array_equal(second.numpy().view(np.int64).reshape(data.shape), data)
    del second, resolved
    assert store.reclaim() == used
    assert ns.stat(store, "free_bytes") == free
    assert ns.stat(store, "leased_bytes") == 0


def test_reading_by_pieces_after_release_is_refused(store: Store) -> None:
    indexes = ns.put(store, "p", {"a": rows()}).indexes
    resolved = store.resolve("p", indexes=indexes)
    resolved.release()
    for read in (
        lambda: ns.view(resolved),
        lambda: ns.copy(resolved, 0, np.int64),
        lambda: resolved.view_address(0, 0),
    ):
        with pytest.raises(ValueError, match="released"):
            read()
    unleased = store.resolve("p", indexes=indexes, lease=False)
    assert unleased.fields == ["a"]
    with pytest.raises(ValueError, match="lease=False"):
        ns.view(unleased)


def test_scattered_rows_of_many_puts_are_gathered_in_order(store: Store) -> None:
    parts = [rows(n=3, width=100, seed=seed) for seed in range(40)]
    indexes = np.concatenate([ns.put(store, "p", {"a": part}).indexes for part in parts])
    order = np.random.default_rng(7).permutation(len(indexes))
    resolved = store.resolve("p", indexes=indexes[order])
    assert resolved.n_blocks == 40
    got = ns.copy(resolved, 0, np.int64).reshape(-1, 100)
    np.testing.assert_array_equal(got, np.concatenate(parts)[order])


def test_ragged_rows(store: Store) -> None:
    lengths = np.array([3, 0, 5, 1], np.int64)
    values = np.arange(lengths.sum(), dtype=np.float32)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64) * 4
    field = FieldLayout("j", RAGGED, 4096, values.nbytes, offsets_offset=0, schema=b"f4")
    reservation = store.reserve(8192, 1.0)
    reservation.copy_in([(0, offsets.ctypes.data, offsets.nbytes), (4096, values.ctypes.data, values.nbytes)])
    indexes = store.publish("p", count=4, reservation=reservation, fields=[field]).indexes
    resolved = store.resolve("p", indexes=indexes[[2, 1, 0]])
    assert resolved.row_nbytes(0, resolved.pieces(0)).tolist() == [20, 0, 12]
    np.testing.assert_array_equal(ns.copy(resolved, 0, np.float32), np.concatenate([values[3:8], values[:3]]))
    layout = resolved.layout(0, 0)
    assert layout is not None
    assert (layout.kind, layout.schema, layout.offsets_offset) == (RAGGED, b"f4", 0)


def test_the_types_of_rows_are_told_once_each(store: Store) -> None:
    puts = [ns.put(store, "p", {"a": rows(n=2).astype(dtype)}).indexes for dtype in (np.int64, np.int32, np.int64)]
    resolved = store.resolve("p", indexes=np.concatenate(puts))
    types = [layout.schema for block in range(3) if (layout := resolved.layout(0, block))]
    assert types[0] == types[2] != types[1]
    assert resolved.schemas(0) == types[:2]
    assert store.resolve("p", indexes=puts[1]).schemas(0) == types[1:2]
    with pytest.raises(ValueError, match="field 1"):
        resolved.schemas(1)


def test_column_blob(store: Store) -> None:
    blob = bytes(range(256)) * 3
    reservation = store.reserve(len(blob), 1.0)
    source = np.frombuffer(blob, np.uint8)
    reservation.copy_in([(0, source.ctypes.data, len(blob))])
    field = FieldLayout("c", COLUMN, 0, len(blob))
    indexes = store.publish("p", count=2, reservation=reservation, fields=[field]).indexes
    resolved = store.resolve("p", indexes=indexes)
    assert resolved.column_bytes(0, 0) == blob
    assert resolved.block_rows(0) == 2


def test_zero_bytes_is_a_tensor_of_no_elements(store: Store) -> None:
    indexes = ns.put(store, "p", {"a": rows()}).indexes
    resolved = store.resolve("p", indexes=indexes)
    tensor = ns.as_tensor(resolved.view(0, 0, 0))
    assert tensor.shape == (0,)
    assert tensor.untyped_storage().nbytes() == 0


def test_capsule_that_nobody_takes_gives_its_lease_back(store: Store) -> None:
    indexes = ns.put(store, "p", {"a": rows()}).indexes
    resolved = store.resolve("p", indexes=indexes)
    capsule = resolved.view(0, 0, 4096)
    del resolved
    assert ns.stat(store, "leased_bytes") > 0
    del capsule
    assert ns.stat(store, "leased_bytes") == 0


def test_tags_rows_and_listing(store: Store) -> None:
    def tag_map(**entries: bytes) -> bytes:
        parts = [len(entries).to_bytes(4, "little")]
        for name, value in sorted(entries.items()):
            parts += [len(name).to_bytes(4, "little"), name.encode(), len(value).to_bytes(4, "little"), value]
        return b"".join(parts)

    result = store.publish("p", keys=["a", "b"], tags=[tag_map(step=b"1"), b""])
    store.merge_tags("p", result.indexes[:1], [tag_map(step=b"2", epoch=b"0")])
    listing = store.list_rows("p")
    assert (listing.partition_found, listing.keys) == (True, ["a", "b"])
    assert listing.tags == [tag_map(step=b"2", epoch=b"0"), b""] or listing.tags[1] in (b"", tag_map())
    described = store.describe_rows("p", result.indexes[[1, 0]])
    assert described.keys == ["b", "a"]
    found, indexes = store.find_keys("p", ["b", "nobody"])
    assert (found, indexes.tolist()) == (True, [int(result.indexes[1]), -1])
    assert store.partitions() == ["p"]
    assert not store.list_rows("other").partition_found


def test_production_and_consumption(store: Store) -> None:
    indexes = ns.put(store, "p", {"a": rows(n=4)}).indexes
    ns.put(store, "p", {"b": rows(n=2, seed=3)}, indexes=indexes[:2])
    found, listed, ready, known = store.production("p", ["a", "b", "c"])
    assert (found, listed.tolist(), known) == (True, indexes.tolist(), [True, True, False])
    assert ready.dtype == np.int8
    assert ready.tolist() == [[1, 1, 0], [1, 1, 0], [1, 0, 0], [1, 0, 0]]

    snapshot = store.task_snapshot("p", "actor", ["a", "b"])
    assert snapshot.ready.tolist() == indexes[:2].tolist()
    assert store.task_commit("p", "actor", snapshot.task_version, ["a", "b"], snapshot.ready[:1], b"state")
    assert not store.task_commit("p", "actor", snapshot.task_version, ["a", "b"], snapshot.ready[1:], b"late")
    again = store.task_snapshot("p", "actor", ["a", "b"])
    assert (again.ready.tolist(), again.sampler_state) == (indexes[1:2].tolist(), b"state")
    assert store.consumption("p", "actor")[2].tolist() == [1, 0, 0, 0]
    store.clear_rows("p", indexes=indexes[:1])
    assert (store.consumed_rows("p", "actor"), store.consumed_rows("p", "critic")) == (1, 0)
    assert store.consumed_rows("q", "actor") is None
    store.task_reset("p", "actor")
    assert store.consumed_rows("p", "actor") == 0
    assert store.consumption("p", "actor")[2].tolist() == [0, 0, 0]


def test_move_rewrites_rows_into_one_block_unless_they_changed(store: Store) -> None:
    parts = [rows(n=1, seed=seed) for seed in range(4)]
    indexes = np.concatenate([ns.put(store, "p", {"a": part}).indexes for part in parts])
    source = store.resolve("p", indexes=indexes)
    gathered = ns.copy(source, 0, np.int64).reshape(4, -1)
    newer = rows(n=1, seed=99)
    ns.put(store, "p", {"a": newer}, indexes=indexes[2:3])  # between the copy and its publication
    fields, nbytes = ns.layouts({"a": gathered})
    reservation = store.reserve(nbytes, 1.0)
    ns.fill(reservation, fields, {"a": gathered})
    assert store.move(source, reservation, fields) == 3
    expected = np.concatenate([parts[0], parts[1], newer, parts[3]])
    got = ns.get(store, "p", "a", np.int64, indexes=indexes).reshape(4, -1)
    np.testing.assert_array_equal(got, expected)
    with pytest.raises(ValueError, match="already published"):
        store.move(source, reservation, fields)
    again = store.reserve(nbytes, 1.0)
    ns.fill(again, fields, {"a": gathered})
    assert store.move(source, again, fields) == 0
    assert ns.stat(store, "pending_bytes") == 0
    np.testing.assert_array_equal(ns.get(store, "p", "a", np.int64, indexes=indexes).reshape(4, -1), expected)


def test_stale_rows_leave_the_reservation_and_the_store_as_they_were(store: Store) -> None:
    data = rows(n=4)
    indexes = ns.put(store, "p", {"a": data}).indexes
    store.clear_rows("p", indexes=indexes[:2])
    fields, nbytes = ns.layouts({"a": data})
    reservation = store.reserve(nbytes, 1.0)
    ns.fill(reservation, fields, {"a": data})
    with pytest.raises(errors.StaleMetadataError) as caught:
        store.publish("p", indexes=indexes, reservation=reservation, fields=fields)
    assert sorted(caught.value.rows) == sorted(indexes[:2].tolist())
    assert ns.stat(store, "pending_bytes") >= nbytes
    fresh = store.publish("q", count=4, reservation=reservation, fields=fields)  # a retry with other rows
    np.testing.assert_array_equal(ns.get(store, "q", "a", np.int64, indexes=fresh.indexes).reshape(data.shape), data)
    assert store.resolve("p", indexes=indexes).gone.tolist() == [0, 1]
