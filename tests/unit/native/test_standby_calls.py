"""What a store needs that follows a partition of another: marks as they are said, keys of given rows, a new name."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.native import native_session as ns
from transferqueue._native import Store, claim_clock

FAR = np.array([(5 << 50) + 3, (5 << 50) + 4, 6 << 50], np.int64)


def numbers(n: int, first: int = 0) -> np.ndarray:
    return np.arange(first, first + n, dtype=np.int64).reshape(n, 1)


def test_rows_are_made_with_index_and_key(store: Store) -> None:
    store.publish("p", indexes=FAR, keys=["a", "b", "c"], create_rows=True, tags=[b"", b"", b""])
    ns.put(store, "p", {"x": numbers(3, 10)}, indexes=FAR, create_rows=True)
    assert store.find_keys("p", ["c", "a", "none"])[1].tolist() == [FAR[2], FAR[0], -1]
    assert store.describe_rows("p", FAR).keys == ["a", "b", "c"]
    store.check()
    with pytest.raises(ValueError, match="exist already"):
        store.publish("p", indexes=FAR + 10, keys=["z", "b", "y"], create_rows=True)
    with pytest.raises(ValueError, match="was given a key"):
        store.publish("p", indexes=FAR, keys=["d", "e", "f"], create_rows=True)
    with pytest.raises(ValueError, match="its key"):
        store.publish("p", indexes=FAR, keys=["d"], create_rows=True)
    with pytest.raises(ValueError, match="not both"):
        store.publish("p", indexes=FAR, keys=["d", "e", "f"])
    store.check()
    assert store.stats()["rows"] == 3
    assert store.clear_rows("p", keys=["a", "b"]) == 2
    store.check()


def test_marks_are_what_is_said(store: Store) -> None:
    ns.put(store, "p", {"x": numbers(3)})
    store.mark_rows("p", "t", np.array([1, 5_000_000], np.int64), b"state")
    assert store.consumption("p", "t")[2].tolist() == [0, 1, 0]
    assert store.consumed_rows("p", "t") == 2, "those that are not there count"
    snapshot = store.task_snapshot("p", "t", ["x"])
    assert (snapshot.ready.tolist(), snapshot.sampler_state) == ([0, 2], b"state")
    store.mark_rows("p", "t", np.array([1, 2], np.int64), None)
    assert store.task_snapshot("p", "t", ["x"]).sampler_state == b"state"
    assert store.consumption("p", "t")[2].tolist() == [0, 1, 1]
    assert not store.task_commit("p", "t", snapshot.task_version, ["x"], np.array([0], np.int64), b""), "it moved on"
    with store.request(b"0123456789abcdef"):
        store.mark_rows("new", "t", np.array([4], np.int64), b"")
    record = store.find_request(b"0123456789abcdef")
    assert record is not None
    assert (record.kind, record.indexes.tolist()) == ("consume", [4])
    store.check()


def test_a_partition_takes_the_name_of_another(store: Store) -> None:
    store.set_limits("p", {"max_unconsumed_rows": 10})
    ns.put(store, "p", {"x": numbers(2, 100)})
    ns.put(store, "shadow", {"x": numbers(3)}, keys=["a", "b", "c"])
    store.mark_rows("shadow", "t", store.find_keys("shadow", ["a"])[1], b"s")
    before = store.partition_version("p")
    assert not store.rename_partition("nothing", "p", 0)
    assert store.rename_partition("shadow", "p", 1 << 62)
    assert store.partitions() == ["p"]
    assert store.partition_version("p") != before
    found = store.find_keys("p", ["a", "b", "c"])[1]
    assert ns.get(store, "p", "x", np.int64, indexes=found).tolist() == [0, 1, 2]
    assert store.consumption("p", "t")[2].tolist() == [1, 0, 0]
    assert store.limit_report("p")["unconsumed_rows"] == 2, "it is held against the limits of its name"
    store.reclaim()
    store.check()
    assert store.stats()["rows"] == 3
    snapshot = store.task_snapshot("p", "t", ["x"])
    rows = snapshot.ready[:1].copy()
    granted = store.claim("p", "t", snapshot.task_version, ["x"], rows, b"", 10.0)
    assert granted is not None
    assert granted[0] >= 1 << 62
    assert granted[1] > claim_clock()
    with pytest.raises(ValueError, match="name that it has"):
        store.rename_partition("p", "p", 0)
