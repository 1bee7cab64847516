"""Field cases of section C that concern rows and their consumers and stand in no other module."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch
from tensordict import TensorDict

import transferqueue as tq
from transferqueue import TransferQueueClient

pytestmark = pytest.mark.timeout(120)


def put(client: TransferQueueClient, rows: int, partition: str = "p") -> tq.BatchMeta:
    return client.put(TensorDict({"x": torch.arange(rows)}, [rows]), partition_id=partition)


def test_partitions_share_no_states(client: TransferQueueClient) -> None:
    """Field case 48."""
    client.clear_samples(put(client, 4, "p1"))
    rows = put(client, 4, "p2").global_indexes
    assert client.get_meta("x", 4, "p1", task_name="t", polling_mode=True, partial=True).size == 0
    assert not client.claim("t", "p1", fields="x", batch_size=4, lease_s=60, partial=True)
    assert client.claim("t", "p2", fields="x", batch_size=4, lease_s=60).meta.global_indexes == rows
    assert client.get_consumption_status("t", "p1")[0].tolist() == []  # type: ignore[union-attr]


def test_clearing_again_or_what_never_was_is_no_error(client: TransferQueueClient) -> None:
    """Field case 49, by rows; by keys it is in `test_keys`."""
    meta = put(client, 4)
    for _ in range(2):
        client.clear_samples(meta[:2])
    client.clear_samples(tq.BatchMeta([meta.global_indexes[1], meta.global_indexes[2], 1 << 40], ["p"] * 3))
    client.clear_samples(tq.BatchMeta([5], ["never"]))
    assert client.get_meta("x", 0, "p", mode="force_fetch").global_indexes == meta.global_indexes[3:]
    for _ in range(2):
        client.clear_partition("p")
    client.clear_partition("never")


def test_rows_cleared_are_told_from_rows_not_produced(client: TransferQueueClient) -> None:
    """Field case 45: "gone" is another error than "not yet", and the one who meets it may go on with others."""
    meta = put(client, 4)
    waiting = client.get_meta(["x"], 2, "p", mode="insert")
    client.clear_samples(meta[:2])
    with pytest.raises(tq.StaleMetadataError):
        client.get_data(meta)
    with pytest.raises(tq.FieldNotReadyError):
        client.get_data(waiting)
    claimed = client.claim("t", "p", fields="x", batch_size=2, lease_s=60)
    assert client.get_data(claimed.meta)["x"].tolist() == [2, 3]


def test_a_claimant_that_starts_first_gets_every_promised_row_and_stops(client: TransferQueueClient) -> None:
    """Field case 52, with claims; streams have theirs in `test_streaming`."""
    got: list[int] = []

    def consume() -> None:
        while len(got) < 16:
            claimed = client.claim("t", "p", fields="x", batch_size=4, lease_s=60, timeout=60, partial=True)
            got.extend(client.get_data(claimed.meta)["x"].tolist())
            client.ack(claimed)

    consumer = threading.Thread(target=consume)
    consumer.start()
    for number in range(16):
        client.put(TensorDict({"x": torch.tensor([number])}, [1]), partition_id="p")
    consumer.join(60)
    assert not consumer.is_alive()
    assert sorted(got) == list(range(16))
    assert client.check_consumption_status("t", "p")


def test_what_was_written_and_never_read_is_counted_and_a_clear_frees_it(
    client: TransferQueueClient, until_freed: Callable[[], None]
) -> None:
    """Field case 72: the consuming step was aborted."""
    put(client, 8)
    step = client.claim("t", "p", fields="x", batch_size=4, lease_s=60)
    client.ack(client.claim("t", "p", fields="x", batch_size=2, lease_s=60))
    assert client.stats("p").rows["unconsumed"] == 6
    client.nack(step)
    assert client.stats("p").rows["unconsumed"] == 6
    client.clear_partition("p")
    until_freed()
    stats = client.stats()
    assert (stats.rows["unconsumed"], stats.used_bytes) == (0, 0)
