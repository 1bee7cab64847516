"""What every transport keeps, whatever it is made of."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.unit.native.native_session import NativeSession, new_session, put
from tests.unit.transferqueue.nodes.transport.transports import Room, expected, put_rows, transport_to
from transferqueue._native import COLUMN, DENSE, RAGGED, FieldLayout, Store
from transferqueue.errors import SchemaMismatchError
from transferqueue.nodes.errors import GoneError
from transferqueue.nodes.transport.protocol import PayloadRequest

pytestmark = pytest.mark.timeout(60)
KINDS = ("in_process", "flight", "flight_streams", "sockets")


@pytest.fixture
def store(session: NativeSession) -> Iterator[Store]:
    attached = session.attach()
    yield attached
    for partition in attached.partitions():
        attached.clear_partition(partition)
    attached.reclaim()
    assert attached.stats()["live_bytes"] == 0
    attached.close()


@pytest.fixture(params=KINDS)
def there(request: pytest.FixtureRequest, store: Store) -> Iterator[tuple[Any, Any]]:
    with transport_to(request.param, [store]) as (transport, [place]):
        yield transport, place


def pulled(there: tuple[Any, Any], what: PayloadRequest) -> Room:
    transport, place = there
    room = Room(transport.describe(place, what))
    report = transport.pull(place, what, room)
    assert report.nbytes == room.nbytes
    return room


def check(there: tuple[Any, Any], store: Store, what: PayloadRequest) -> None:
    room, right = pulled(there, what), expected(store, what)
    assert list(room.fields) == list(what.fields)
    for name in what.fields:
        np.testing.assert_array_equal(room.fields[name], right[name])


def test_a_description_says_how_rows_lie(there: tuple[Any, Any], store: Store) -> None:
    transport, place = there
    first = put_rows(store, "p", 10, 1)
    second = put_rows(store, "p", 5, 2, dense_nbytes=8, schema=b"other")
    rows = np.concatenate((second[:3], first))
    described = transport.describe(place, PayloadRequest("p", rows, ("d", "r")))
    dense, ragged = described.fields["d"], described.fields["r"]
    assert dense.types == ((DENSE, b"other", 8), (DENSE, b"d", 16))
    assert dense.which.tolist() == [0] * 3 + [1] * 10
    assert dense.sizes.tolist() == [8] * 3 + [16] * 10
    assert ragged.types == ((RAGGED, b"r", 0),)
    assert described.nbytes == dense.nbytes + ragged.nbytes == 3 * 8 + 160 + int(ragged.sizes.sum())


@pytest.mark.parametrize("order", ["whole", "slice", "shuffled", "none"])
def test_rows_come_in_the_order_asked_for(there: tuple[Any, Any], store: Store, order: str) -> None:
    rows = np.concatenate([put_rows(store, "p", n, n) for n in (100, 7, 33)])
    chosen = {
        "whole": rows,
        "slice": rows[20:90],
        "shuffled": np.random.default_rng(3).permutation(rows)[:120],
        "none": rows[:0],
    }[order]
    check(there, store, PayloadRequest("p", chosen, ("r", "d")))
    check(there, store, PayloadRequest("p", chosen, ("d",)))


@pytest.mark.parametrize(("dense_nbytes", "longest"), [(0, 0), (3, 1), (70_000, 200_000), (300_000, 10)])
def test_rows_of_any_size_are_whole(there: tuple[Any, Any], store: Store, dense_nbytes: int, longest: int) -> None:
    rows = [put_rows(store, "p", 12, seed, dense_nbytes=dense_nbytes, longest=longest) for seed in range(3)]
    mixed = np.random.default_rng(1).permutation(np.concatenate(rows))
    check(there, store, PayloadRequest("p", np.concatenate(rows), ("d", "r")))
    check(there, store, PayloadRequest("p", mixed, ("r", "d")))


def test_rows_that_were_overwritten_in_part_come_from_several_blocks(there: tuple[Any, Any], store: Store) -> None:
    rows = put_rows(store, "p", 40, 1, dense_nbytes=9000)
    for seed in range(2, 6):
        put_rows(store, "p", 5, seed, dense_nbytes=9000, indexes=rows[seed * 4 : seed * 4 + 5])
    check(there, store, PayloadRequest("p", rows, ("d", "r")))


def test_many_pulls_at_once(there: tuple[Any, Any], store: Store) -> None:
    rows = put_rows(store, "p", 200, 5, dense_nbytes=30_000)
    errors: list[BaseException] = []

    def one(part: int) -> None:
        try:
            check(there, store, PayloadRequest("p", rows[part * 40 : part * 40 + 60], ("d", "r")))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=one, args=(part,)) for part in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_what_is_not_there_is_gone(there: tuple[Any, Any], store: Store) -> None:
    transport, place = there
    rows = put_rows(store, "p", 10, 1)
    room = Room(transport.describe(place, PayloadRequest("p", rows, ("d", "r"))))
    store.clear_rows("p", indexes=rows[4:6])
    for what in (
        PayloadRequest("p", rows, ("d", "r")),
        PayloadRequest("p", rows[:2], ("d", "x")),
        PayloadRequest("never", rows, ("d", "r")),
    ):
        with pytest.raises(GoneError):
            transport.describe(place, what)
        with pytest.raises(GoneError) as caught:
            transport.pull(place, what, room)
    assert caught.value.partition_id == "never"
    with pytest.raises(GoneError) as caught:
        transport.pull(place, PayloadRequest("p", rows, ("d", "r")), room)
    assert caught.value.rows == tuple(rows[4:6].tolist())


def test_rows_may_have_to_lie_in_their_blocks(there: tuple[Any, Any], store: Store) -> None:
    transport, place = there
    rows = put_rows(store, "p", 10, 1)
    resolved = store.resolve("p", indexes=rows, fields=["d", "r"])
    blocks = np.full(10, resolved.block_id(0), np.int64)
    resolved.release()
    what = PayloadRequest("p", rows, ("d", "r"), blocks)
    check(there, store, what)
    put_rows(store, "p", 2, 7, indexes=rows[3:5])
    with pytest.raises(GoneError) as caught:
        transport.describe(place, what)
    assert caught.value.rows == tuple(rows[3:5].tolist())


def test_columns_that_are_read_whole_are_refused(there: tuple[Any, Any], store: Store) -> None:
    transport, place = there
    reservation = store.reserve(64, 5.0)
    rows = store.publish("p", count=2, reservation=reservation, fields=[FieldLayout("c", COLUMN, 0, 10)]).indexes
    with pytest.raises(SchemaMismatchError, match="'c'"):
        transport.describe(place, PayloadRequest("p", rows, ("c",)))


def test_several_sources_are_told_apart(store: Store) -> None:
    with new_session() as session, transport_to("flight", [store, (other := session.attach())]) as (transport, places):
        for place, source, value in zip(places, (store, other), (1, 2), strict=True):
            rows = put(source, "p", {"a": np.full((4, 8), value)}).indexes
            check((transport, place), source, PayloadRequest("p", rows, ("a",)))
        other.close()


def test_the_lease_of_a_pull_ends_with_it(there: tuple[Any, Any], store: Store) -> None:
    rows = put_rows(store, "p", 20, 1, dense_nbytes=100_000)
    check(there, store, PayloadRequest("p", rows, ("d", "r")))
    store.clear_rows("p", indexes=rows)
    for _ in range(100):
        store.reclaim()
        if store.stats()["live_bytes"] == 0 and not store.leases():
            return
        threading.Event().wait(0.05)
    raise AssertionError(store.leases())
