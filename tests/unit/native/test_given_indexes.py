"""Rows under indexes that the caller names, sessions whose indexes begin elsewhere, and names of blocks."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.native import native_session as ns
from transferqueue._native import Store
from transferqueue.errors import StaleMetadataError

NODE_ROWS = 1 << 50
FAR = np.array([5 * NODE_ROWS + 3, 1, 5 * NODE_ROWS + 2], np.int64)


def numbers(n: int, first: int = 0) -> np.ndarray:
    return np.arange(first, first + n, dtype=np.int64).reshape(n, 1)


def test_blocks_have_names_that_do_not_come_again(store: Store) -> None:
    seen = set()
    for _ in range(5):
        indexes = ns.put(store, "p", {"a": numbers(2)}).indexes
        later = ns.put(store, "p", {"a": numbers(1)}).indexes
        resolved = store.resolve("p", indexes=np.concatenate([indexes, later]))
        names = [resolved.block_id(block) for block in range(resolved.n_blocks)]
        assert names == [store.resolve("p", indexes=row).block_id(0) for row in (indexes, later)]
        assert all(0 < name < 1 << 40 for name in names)
        assert not seen & set(names)
        seen |= set(names)
        with pytest.raises(ValueError, match="block"):
            resolved.block_id(2)
        resolved.release()
        store.clear_rows("p", indexes=indexes)
        store.reclaim()
    assert len(seen) == 10


def test_rows_are_made_under_given_indexes(store: Store) -> None:
    ns.put(store, "p", {"a": numbers(3)})
    with pytest.raises(StaleMetadataError):
        ns.put(store, "p", {"a": numbers(3, 10)}, indexes=FAR)
    assert ns.put(store, "p", {"a": numbers(3, 10)}, indexes=FAR, create_rows=True).indexes.tolist() == FAR.tolist()
    assert ns.get(store, "p", "a", np.int64, indexes=FAR).tolist() == [10, 11, 12]
    assert store.publish("p", indexes=FAR + 10 * NODE_ROWS, create_rows=True).indexes.size == 3  # bare
    assert store.stats()["rows"] == 8
    with pytest.raises(ValueError, match="gives out indexes from 3 to"):
        store.publish("p", indexes=np.array([3]), create_rows=True)
    store.check()
    assert store.clear_rows("p", indexes=np.concatenate([FAR, [0]])) == 4
    store.check()


def test_indexes_begin_where_the_session_was_told() -> None:
    with ns.new_session(first_row=7 * NODE_ROWS) as session:
        store = session.attach()
        assert ns.put(store, "p", {"a": numbers(2)}).indexes.tolist() == [7 * NODE_ROWS, 7 * NODE_ROWS + 1]
        assert store.save().session.next_row == 7 * NODE_ROWS + 2
        assert store.publish("p", indexes=np.arange(2), create_rows=True).indexes.tolist() == [0, 1]
        store.check()
        store.close()
    with pytest.raises(ValueError, match="multiple of"), ns.new_session(first_row=7):
        pass
