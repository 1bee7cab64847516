"""Compaction against what others do to the same rows meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from tensordict import TensorDict

import transferqueue as tq
from tests.race import deeds
from tests.race.paused import settled, stop_elsewhere, stopped
from tests.support.compaction import compact
from tests.support.nursery import Nursery
from tests.support.versioned_rows import WIDTH, rows, versions_of
from transferqueue import BatchMeta, TransferQueueClient

pytestmark = pytest.mark.timeout(120)
KEPT = [3, 4, 9, 30]
# After the rows were read from the index, and before their new places are published.
BEFORE_THE_COMMIT = ["get.after_lease", "copy.midway", "put.after_copy"]


def sparse(client: TransferQueueClient, kept: Sequence[int] = KEPT) -> BatchMeta:
    """Some rows of a block of 32."""
    meta = client.put(rows(range(32), 1), partition_id="p")
    client.clear_samples(meta.select_samples([at for at in range(32) if at not in kept]))
    return meta.select_samples(list(kept))


def versions(version: int) -> list[tuple[int, int]]:
    return [(number, version) for number in KEPT]


def in_order(client: TransferQueueClient) -> None:
    client._store.check()
    settled(client)


@pytest.mark.parametrize("point", BEFORE_THE_COMMIT)
@pytest.mark.parametrize("how", ["overwritten", "one row", "one field", "cleared", "one cleared", "partition"])
def test_rows_that_change_under_a_compaction(
    client: TransferQueueClient, nursery: Nursery, point: str, how: str
) -> None:
    meta = sparse(client)
    compactor = nursery.start(stop_elsewhere, client.session, point, compact)
    assert compactor.receive() == "paused"
    left, expected = meta, versions(1)
    if how == "overwritten":
        deeds.overwrite(client, meta, KEPT, 2)
        expected = versions(2)
    elif how == "one row":
        deeds.overwrite(client, meta.select_samples([1]), KEPT[1:2], 2)
        expected[1] = (KEPT[1], 2)
    elif how == "one field":
        client.put(TensorDict({"x": rows(KEPT, 5)["x"]}, [4]), metadata=meta)
    elif how == "cleared":
        client.clear_samples(meta)
    elif how == "one cleared":
        client.clear_samples(meta.select_samples([2]))
        left, expected = meta.select_samples([0, 1, 3]), [expected[at] for at in (0, 1, 3)]
    else:
        client.clear_partition("p")
    compactor.pipe.send("go on")
    assert isinstance(compactor.receive(), int)
    assert compactor.wait() == 0
    if how == "one field":
        assert (client.get_data(meta, fields=["x"])["x"] == rows(KEPT, 5)["x"]).all()
        client.put(TensorDict({"x": rows(KEPT, 1)["x"]}, [4]), metadata=meta)
    if how in ("cleared", "partition"):
        with pytest.raises(tq.StaleMetadataError):
            client.get_data(meta)
    else:
        assert deeds.read(client, left) == expected
    in_order(client)


@pytest.mark.parametrize("point", ["get.after_resolve", "lease.before_store"])
def test_a_get_whose_block_is_emptied_under_it(client: TransferQueueClient, nursery: Nursery, point: str) -> None:
    """It found rows in a block that is gone, and written over, before it has its lease."""
    meta = sparse(client)
    getter = nursery.start(stop_elsewhere, client.session, point, deeds.read, meta)
    assert getter.receive() == "paused"
    assert compact(client) > 0
    deeds.fill_all_room(client, 0xEE)
    client.clear_partition("filler")
    getter.pipe.send("go on")
    assert getter.receive() == versions(1)
    assert getter.wait() == 0
    in_order(client)


def test_views_taken_under_a_compaction(client: TransferQueueClient, nursery: Nursery) -> None:
    """They keep the old block, and what is written into them reaches nobody."""
    meta = sparse(client, range(8))  # 128 KiB in one stretch: viewed
    compactor = nursery.start(stop_elsewhere, client.session, "put.after_copy", compact)
    assert compactor.receive() == "paused"
    held = client.get_data(meta)
    compactor.pipe.send("go on")
    assert compactor.receive() > 0
    assert compactor.wait() == 0
    deeds.fill_all_room(client, 0xEE)
    client.clear_partition("filler")
    assert versions_of(held) == [(number, 1) for number in range(8)]
    held["x"].fill_(-1)
    assert deeds.read(client, meta) == [(number, 1) for number in range(8)]
    assert client.stats().retired_bytes > 0
    del held
    in_order(client)


def test_rows_that_are_consumed_and_claimed_under_a_compaction(client: TransferQueueClient, nursery: Nursery) -> None:
    meta = sparse(client)
    compactor = nursery.start(stop_elsewhere, client.session, "copy.midway", compact)
    assert compactor.receive() == "paused"
    consumed = deeds.fetch(client, "p", 1)
    claimed = client.claim("t", "p", fields=["n", "r", "s", "x"], batch_size=2, lease_s=3600)
    compactor.pipe.send("go on")
    assert compactor.receive() > 0
    assert compactor.wait() == 0
    assert deeds.read(client, claimed.meta) == [
        pair for pair in versions(1) if pair[0] in _numbers(client, claimed.meta)
    ]
    client.ack(claimed)
    rest = deeds.fetch(client, "p", 1)
    assert sorted(consumed + list(claimed.meta.global_indexes) + rest) == sorted(meta.global_indexes)
    in_order(client)


def _numbers(client: TransferQueueClient, meta: BatchMeta) -> list[int]:
    return [number for number, _ in deeds.read(client, meta)]


def test_two_at_once(client: TransferQueueClient, nursery: Nursery) -> None:
    """One of them leaves it to the other. Who was killed holds nobody up."""
    meta = sparse(client)
    first = nursery.start(stop_elsewhere, client.session, "copy.midway", compact)
    assert first.receive() == "paused"
    assert compact(client) == 0
    first.kill()
    first.wait()
    assert compact(client) > 0
    assert deeds.read(client, meta) == versions(1)
    in_order(client)


def test_coalesced_under_a_compaction(client: TransferQueueClient, nursery: Nursery) -> None:
    meta = BatchMeta.concat([sparse(client), sparse(client)])
    compactor = nursery.start(stop_elsewhere, client.session, "copy.midway", compact)
    assert compactor.receive() == "paused"
    client.coalesce(meta)
    compactor.pipe.send("go on")
    compactor.receive()
    assert compactor.wait() == 0
    assert deeds.read(client, meta) == versions(1) + versions(1)
    in_order(client)


def test_a_checkpoint_of_rows_that_move(client: TransferQueueClient, nursery: Nursery, tmp_path: Path) -> None:
    """Its blocks are named before, and leased after, they were emptied: it starts over."""
    meta = sparse(client)
    with stopped("save.after_blocks", client.save_checkpoint, tmp_path / "saved") as saving:
        assert nursery.run(_compact_elsewhere, client.session) == 0
    saving.result()
    client.clear_samples(meta)
    client.load_checkpoint(tmp_path / "saved")
    assert deeds.read(client, meta) == versions(1)
    in_order(client)


def _compact_elsewhere(_: object, session: str) -> None:
    client = tq.init(session=session).client
    assert compact(client) > 0
    tq.close()


def test_puts_go_on_while_a_compaction_stands(client: TransferQueueClient, nursery: Nursery) -> None:
    """Wherever it stands but inside of a transaction."""
    meta = sparse(client)
    for point in ("lease.before_recheck", "get.after_resolve", "copy.midway", "put.after_copy", "retire.before_scan"):
        compactor = nursery.start(stop_elsewhere, client.session, point, compact)
        assert compactor.receive() == "paused"
        other = client.put(rows(range(4), 7), partition_id="q", timeout=0)
        assert deeds.read(client, other) == [(number, 7) for number in range(4)]
        compactor.pipe.send("go on")
        compactor.receive()
        assert compactor.wait() == 0
        assert deeds.read(client, meta) == versions(1)
        client.clear_samples(meta)
        meta = sparse(client)
    assert WIDTH * 8 * len(KEPT) < client.stats().used_bytes
    in_order(client)
