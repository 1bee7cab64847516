"""Puts and coalescing against what others do to their rows meanwhile."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

import transferqueue as tq
from tests.race import deeds
from tests.race.paused import Call, settled, stop_elsewhere, stopped
from tests.support.nursery import Nursery
from tests.support.versioned_rows import rows, versions_of
from transferqueue import BatchMeta, TransferQueueClient

pytestmark = pytest.mark.timeout(120)
EIGHT = list(range(8))
BEFORE_THE_COMMIT = ["index.reserve.before_commit", "put.after_copy", "put.before_publish"]


def versions(version: int) -> list[tuple[int, int]]:
    return [(number, version) for number in EIGHT]


def scattered(client: TransferQueueClient) -> BatchMeta:
    return BatchMeta.concat([client.put(rows([number], 1), partition_id="p") for number in EIGHT])


# -- the look at the rows right before the commit --------------------------------------------------------------------


@pytest.mark.parametrize("point", BEFORE_THE_COMMIT)
@pytest.mark.parametrize("how", ["all rows", "one row", "partition"])
def test_rows_cleared_under_a_put(client: TransferQueueClient, nursery: Nursery, point: str, how: str) -> None:
    """It is refused as a whole, stores nothing and gives its space back; the other rows are as they were."""
    meta = client.put(rows(EIGHT, 1), partition_id="p")
    putter = nursery.start(stop_elsewhere, client.session, point, deeds.overwrite, meta, EIGHT, 2)
    assert putter.receive() == "paused"
    if point == "index.reserve.before_commit":
        clearing = Call(_clear, client, meta, how)  # behind the write lock that the putter holds
        putter.pipe.send("go on")
        answer = putter.receive()
        clearing.result()
    else:
        _clear(client, meta, how)
        putter.pipe.send("go on")
        answer = putter.receive()
        assert isinstance(answer, tq.StaleMetadataError)
    assert putter.wait() == 0
    if isinstance(answer, tq.StaleMetadataError):
        gone = {"all rows": meta.global_indexes, "one row": meta.global_indexes[3:4], "partition": meta.global_indexes}
        assert sorted(answer.rows) == gone[how]
    if how == "one row":
        rest = meta.select_samples([0, 1, 2, 4, 5, 6, 7])
        version = 1 if isinstance(answer, tq.StaleMetadataError) else 2
        assert deeds.read(client, rest) == [(number, version) for number in EIGHT if number != 3]
    with pytest.raises(tq.StaleMetadataError):
        client.get_data(meta)
    client.clear_partition("p")
    settled(client)
    assert client.stats().used_bytes == 0


def _clear(client: TransferQueueClient, meta: BatchMeta, how: str) -> None:
    if how == "partition":
        client.clear_partition("p")
    else:
        client.clear_samples(meta if how == "all rows" else meta.select_samples([3]))


@pytest.mark.parametrize("point", ["put.after_copy", "put.before_publish"])
def test_keys_cleared_under_a_put_are_made_anew(client: TransferQueueClient, point: str) -> None:
    """A put by keys means the keys, not rows: it is whole in any case, and the old row's tags are gone with it."""
    keys = [f"k{number}" for number in EIGHT]
    client.kv_batch_put(keys, "p", rows(EIGHT, 1), [{"old": number} for number in EIGHT])
    before = client.kv_retrieve_meta(keys, "p").global_indexes
    with stopped(point, client.kv_batch_put, keys, "p", rows(EIGHT, 2)) as call:
        client.kv_clear(keys[2:5], "p")
    call.result()
    assert versions_of(client.kv_batch_get(keys, "p")) == versions(2)
    after = client.kv_retrieve_meta(keys, "p").global_indexes
    assert [old == new for old, new in zip(before, after, strict=True)] == [at not in (2, 3, 4) for at in EIGHT]
    listed = client.kv_list("p")["p"]
    assert [listed[key] for key in keys] == [{} if at in (2, 3, 4) else {"old": at} for at in EIGHT]


def test_two_puts_of_the_same_new_keys(client: TransferQueueClient) -> None:
    """The one that commits last wins as a whole; no key is there twice."""
    keys = [f"k{number}" for number in EIGHT]
    with stopped("put.before_publish", client.kv_batch_put, keys, "p", rows(EIGHT, 1)) as first:
        second = Call(_put_in_another_order, client, keys)
        # Both stand before their commits, or the second is through: it makes no difference to what is there at the end.
    first.result()
    second.result()
    assert list(client.kv_list("p")["p"]) in (keys, keys[::-1])
    found = versions_of(client.kv_batch_get(keys, "p"))
    assert found in (versions(1), versions(2))


def _put_in_another_order(client: TransferQueueClient, keys: list[str]) -> None:
    client.kv_batch_put(keys[::-1], "p", rows(EIGHT[::-1], 2))


# -- coalescing ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["get.after_lease", "copy.midway", "put.after_copy"])
def test_coalescing_never_undoes_a_newer_put(client: TransferQueueClient, nursery: Nursery, point: str) -> None:
    meta = scattered(client)
    slow = nursery.start(stop_elsewhere, client.session, point, deeds.coalesce, meta)
    assert slow.receive() == "paused"
    deeds.overwrite(client, meta.select_samples([2, 5]), [2, 5], 2)
    client.clear_samples(meta.select_samples([6]))
    slow.pipe.send("go on")
    assert slow.receive() is None
    assert slow.wait() == 0
    rest = meta.select_samples([0, 1, 2, 3, 4, 5, 7])
    expected = [(number, 2 if number in (2, 5) else 1) for number in EIGHT if number != 6]
    for mode in ("cow", "copy"):
        assert deeds.read(client, rest, mode) == expected
    with pytest.raises(tq.StaleMetadataError):
        client.get_data(meta)
    client.clear_partition("p")
    settled(client)


def test_coalescing_rows_that_were_all_replaced_moves_nothing(client: TransferQueueClient, nursery: Nursery) -> None:
    meta = scattered(client)
    slow = nursery.start(stop_elsewhere, client.session, "copy.midway", deeds.coalesce, meta)
    assert slow.receive() == "paused"
    deeds.overwrite(client, meta, EIGHT, 2)
    slow.pipe.send("go on")
    assert slow.receive() is None
    assert slow.wait() == 0
    assert deeds.read(client, meta) == versions(2)
    client.clear_partition("p")
    settled(client)


def test_one_field_replaced_under_a_coalesce(client: TransferQueueClient, nursery: Nursery) -> None:
    """The other fields move; the new values of this one stay."""
    meta = scattered(client)
    slow = nursery.start(stop_elsewhere, client.session, "copy.midway", deeds.coalesce, meta)
    assert slow.receive() == "paused"
    client.put(TensorDict({"x": torch.full((8, 3000), -9)}, [8]), metadata=meta.copy())
    slow.pipe.send("go on")
    assert slow.receive() is None
    assert slow.wait() == 0
    assert client.get_data(meta, fields=["x"])["x"].unique().tolist() == [-9]
    assert client.get_data(meta, fields=["n"])["n"].tolist() == [[number, 1] for number in EIGHT]


def test_two_coalesce_the_same_rows(client: TransferQueueClient, nursery: Nursery) -> None:
    meta = scattered(client)
    slow = nursery.start(stop_elsewhere, client.session, "put.after_copy", deeds.coalesce, meta)
    assert slow.receive() == "paused"
    client.coalesce(meta)
    slow.pipe.send("go on")
    assert slow.receive() is None
    assert slow.wait() == 0
    assert deeds.read(client, meta) == versions(1)
    assert client.get_data_with_report(meta, fields=["x"])[1].bytes_viewed > 0
    client.clear_partition("p")
    settled(client)


def test_views_taken_before_and_after_a_coalesce(client: TransferQueueClient) -> None:
    meta = client.put(rows(EIGHT, 1), partition_id="p")
    before = client.get_data(meta)
    deeds.overwrite(client, meta.select_samples([1]), [1], 2)
    client.coalesce(meta)
    after = client.get_data(meta)
    before["x"].fill_(-1)
    deeds.overwrite(client, meta, EIGHT, 3)
    client._store.reclaim()
    deeds.fill_all_room(client, 0xEE)
    assert versions_of(after) == [(number, 2 if number == 1 else 1) for number in EIGHT]
    assert before["x"].unique().tolist() == [-1]
    assert deeds.read(client, meta) == versions(3)
