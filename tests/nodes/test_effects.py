"""What a home tells its standby makes the same partition there: change by change, and all at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from transferqueue._native import DENSE, FieldLayout, Store
from transferqueue.codec.schema import schema_bytes
from transferqueue.config import build_config
from transferqueue.errors import CorruptSegmentError
from transferqueue.node_service.effects import Effect, apply_effect
from transferqueue.node_service.partition_image import image_of
from transferqueue.node_service.replicated_store import PartitionLog, ReplicatedStore
from transferqueue.nodes import messages
from transferqueue.nodes.errors import NotHomeError
from transferqueue.nodes.names import MOST_NODES, first_row, is_standby, standby_name
from transferqueue.nodes.stubs import StubPlan
from transferqueue.storage.creation import create_session
from transferqueue.storage.names import new_session_name
from transferqueue.tag_maps import encode_tags

pytestmark = pytest.mark.timeout(60)
SCHEMA = schema_bytes("dense", "int64", (3,))


class Logs:
    def __init__(self) -> None:
        self.log = PartitionLog(0)

    def log_to_change(self, partition: str) -> PartitionLog:
        return self.log


@pytest.fixture
def stores() -> Iterator[tuple[Store, Store]]:
    """Of a home, node 0, and its standby, node 1."""
    name = new_session_name()
    made = [
        create_session(f"{name}.n{node}", build_config({"storage.size": "8MiB"}), first_row=first_row(node))
        for node in range(2)
    ]
    assert made[0] is not None
    assert made[1] is not None
    yield made[0].store, made[1].store
    for attachment in made:
        assert attachment is not None
        attachment.end()


def put(store: ReplicatedStore, names: np.ndarray, fields: list[str], request_id: bytes = b"", **rows: Any) -> object:
    plan = StubPlan(names, dict.fromkeys(fields, SCHEMA))
    reservation = store._store.reserve(plan.nbytes, 0.0)
    plan.write(reservation)
    with store.working_on(request_id, names):
        nbytes = 24 * len(names) * len(fields)
        return store.publish("p", reservation=reservation, fields=plan.layouts, elsewhere_nbytes=nbytes, **rows)


def state_of(store: Store, partition: str) -> object:
    listing = store.list_rows(partition)
    rows = listing.indexes
    read: dict[str, object] = {}
    for field in store.field_names(partition):
        resolved = store.resolve(partition, indexes=rows, fields=[field])
        pieces = resolved.pieces(0)
        names = np.empty(int(pieces[:, 1].sum()), dtype=np.int64)
        resolved.copy_rows(0, pieces, names.ctypes.data, names.nbytes)
        covered = [row for first, count, _, _ in pieces.tolist() for row in range(first, first + count)]
        read[field] = (covered, names.tolist(), resolved.schemas(0))
        resolved.release()
    tasks = {
        task: (store.consumption(partition, task)[2].tolist(), store.consumed_rows(partition, task))
        for task in ("t", "u")
    }
    states = [store.task_snapshot(partition, task, []).sampler_state for task in ("t", "u")]
    [held] = [each["live_bytes"] for each in store.partition_stats() if each["name"] == partition]
    return rows.tolist(), listing.keys, listing.tags, read, tasks, states, held


def told(log: PartitionLog, store: Store, partition: str) -> None:
    effects: list[Effect] = messages.decode(messages.encode(log.unsent))
    for effect in effects:
        apply_effect(store, partition, effect, lambda nbytes: store.reserve(nbytes, 0.0))
    log.first, log.unsent = log.end, []


def test_change_by_change_and_all_at_once(stores: tuple[Store, Store]) -> None:
    home, other = stores
    logs = Logs()
    store = ReplicatedStore(home, logs)
    shadow = standby_name("p")
    names = np.arange(100, 108, dtype=np.int64)
    store.set_limits("p", {"max_unconsumed_rows": 12, "when_exceeded": "shed"})
    first = home.publish("other", count=1)
    assert first.indexes.size == 1
    put(store, names, ["x", "y"], b"a" * 16, count=8, tags=[b""] * 8)
    put(store, names[:3] + 50, ["z"], b"b" * 16, keys=["k1", "k2", "k3"])
    told(logs.log, other, shadow)
    assert state_of(home, "p") == state_of(other, shadow)
    record, mirrored = home.find_request(b"a" * 16), other.find_request(b"a" * 16)
    assert record is None, "the home records what its own calls number"
    assert mirrored is not None
    assert (mirrored.kind, mirrored.indexes.tolist()) == ("publish", home.list_rows("p").indexes.tolist()[:8])
    # One of the keys is there, two are new, and the put sheds two of the oldest rows.
    put(store, names[:3] + 60, ["z", "x"], keys=["k3", "k4", "k5"])
    put(store, names[:1] + 70, ["y"], indexes=home.find_keys("p", ["k5"])[1])
    snapshot = home.task_snapshot("p", "t", ["x"])
    assert store.task_commit("p", "t", snapshot.task_version, ["x"], snapshot.ready[:2].copy(), b"state")
    assert not store.task_commit("p", "t", snapshot.task_version, ["x"], snapshot.ready[:2].copy(), b"state")
    snapshot = home.task_snapshot("p", "u", ["x"])
    granted = store.claim("p", "u", snapshot.task_version, ["x"], snapshot.ready[:3].copy(), b"claimed", 100.0)
    assert granted is not None
    told(logs.log, other, shadow)
    assert state_of(home, "p") == state_of(other, shadow)
    store.finish_claim("p", "u", granted[0], True)
    store.merge_tags("p", home.find_keys("p", ["k1"])[1], [encode_tags({"a": 1})])
    store.clear_rows("p", keys=["k2"])
    store.clear_rows("p", indexes=snapshot.ready[:1].copy())
    told(logs.log, other, shadow)
    assert state_of(home, "p") == state_of(other, shadow)
    for effect in messages.decode(messages.encode(list(image_of(home, "p")))):
        apply_effect(other, "anew", effect, lambda nbytes: other.reserve(nbytes, 0.0))
    assert state_of(home, "p") == state_of(other, "anew")
    store.task_reset("p", "t")
    told(logs.log, other, shadow)
    assert state_of(home, "p") == state_of(other, shadow)
    store.clear_partition("p")
    told(logs.log, other, shadow)
    assert shadow not in other.partitions()
    other.check()


def test_payload_of_one_node_alone_is_refused(stores: tuple[Store, Store]) -> None:
    home, _ = stores
    reservation = home.reserve(64, 0.0)
    reservation.copy_in([])
    home.publish("p", count=1, reservation=reservation, fields=[FieldLayout("x", DENSE, 0, 8, 8, 0, SCHEMA)])
    with pytest.raises(CorruptSegmentError, match="one node alone"):
        list(image_of(home, "p"))


def test_who_is_home_no_more_changes_nothing(stores: tuple[Store, Store]) -> None:
    home, _ = stores
    logs = Logs()
    store = ReplicatedStore(home, logs)
    store.publish("p", count=1)

    def publish() -> None:
        with pytest.raises(NotHomeError):
            store.publish("p", count=1)

    with logs.log.commits:
        waiting = threading.Thread(target=publish)
        waiting.start()
        logs.log.is_over = True
    waiting.join()
    assert home.stats()["rows"] == 1


def test_names_of_what_is_followed() -> None:
    assert is_standby(standby_name("p"))
    assert standby_name("p") != standby_name("q")
    long = standby_name("é" * 300)
    assert is_standby(long)
    assert len(long.encode()) <= 400
    assert MOST_NODES > 1
