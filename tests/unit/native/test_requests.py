"""Numbered requests: done once, whoever asks again, and in whatever process."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.native import native_session as ns
from transferqueue._native import AlreadyApplied, Store

ID, OTHER = bytes(range(16)), bytes(16)


def numbers(n: int, first: int = 0) -> np.ndarray:
    return np.arange(first, first + n, dtype=np.int64).reshape(n, 1)


def test_a_put_is_done_once(store: Store) -> None:
    with store.request(ID, b"\0reply"):
        indexes = ns.put(store, "p", {"a": numbers(3)}).indexes
    with store.request(ID), pytest.raises(AlreadyApplied):
        ns.put(store, "p", {"a": numbers(5)})
    record = store.find_request(ID)
    assert record is not None
    assert (record.kind, record.reply, record.shed_rows) == ("publish", b"\0reply", 0)
    assert record.indexes.tolist() == indexes.tolist()
    assert record.partition_version == store.partition_version("p")
    assert store.find_request(OTHER) is None
    assert store.stats()["rows"] == 3
    assert store.drop_requests() == 0
    store.check()


def test_claims_and_clears(store: Store) -> None:
    ns.put(store, "p", {"a": numbers(3)})
    snapshot = store.task_snapshot("p", "t", ["a"])
    with store.request(ID):
        granted = store.claim("p", "t", snapshot.task_version, ["a"], snapshot.ready[::2].copy(), b"", 100.0)
    assert granted is not None
    record = store.find_request(ID)
    assert record is not None
    assert (record.kind, record.indexes.tolist()) == ("claim", [0, 2])
    assert (record.fencing, record.deadline_s) == granted
    with store.request(OTHER):
        store.clear_rows("p", indexes=np.arange(2))
    cleared = store.find_request(OTHER)
    assert cleared is not None
    assert (cleared.kind, cleared.rows) == ("clear", 2)


def test_misuse_is_an_error(store: Store) -> None:
    for wrong in (b"", bytes(15), bytes(17)):
        with pytest.raises(ValueError, match="16 bytes"):
            store.request(wrong)
        with pytest.raises(ValueError, match="16 bytes"):
            store.find_request(wrong)
    with store.request(ID) as _, pytest.raises(ValueError, match="in the middle"), store.request(OTHER):
        pass
    store.publish("p", count=1)
    assert store.find_request(ID) is None


def test_a_process_that_dies_after_the_commit_has_done_it(session: ns.NativeSession, store: Store) -> None:
    code = f"with store.request({ID!r}):\n    store.publish('p', count=2)"
    assert ns.run(session, code, pause="index.publish.before_commit=kill")[0] == -9
    assert store.find_request(ID) is None
    assert ns.run(session, code, pause="index.publish.after_commit=kill")[0] == -9
    with store.request(ID), pytest.raises(AlreadyApplied):
        store.publish("p", count=2)
    assert store.stats()["rows"] == 2


def test_a_forked_child_is_not_armed(store: Store) -> None:
    with store.request(ID):
        child = ns.fork(lambda: void(store.publish("p", count=1)))
        assert ns.exit_status(child) == 0
        assert store.find_request(ID) is None
        store.publish("p", count=4)
    record = store.find_request(ID)
    assert record is not None
    assert record.indexes.size == 4


def void(_: object) -> None:
    """A result that nobody wants."""
