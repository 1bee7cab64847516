"""While bytes are copied or memory is backed, no lock is held: everybody else's puts, gets and clears go on."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

import transferqueue as tq
from tests.race import deeds
from tests.race.paused import stop_elsewhere
from tests.support.nursery import Nursery
from tests.support.versioned_rows import rows
from transferqueue import BatchMeta, TransferQueueClient

pytestmark = pytest.mark.timeout(120)
EIGHT = list(range(8))  # 128 KiB and more: what may not be copied under a lock


def put_large(client: TransferQueueClient, meta: BatchMeta) -> None:
    client.put(rows(EIGHT, 2), partition_id="theirs")


def put_beyond_what_is_backed(client: TransferQueueClient, meta: BatchMeta) -> None:
    """33 MiB: more than the step that is backed, less than the store."""
    client.put(TensorDict({"x": torch.zeros(33, 1 << 17, dtype=torch.int64)}, [33]), partition_id="theirs")


def gather(client: TransferQueueClient, meta: BatchMeta) -> None:
    client.get_data(meta, mode="copy")


@pytest.mark.parametrize(
    ("point", "deed"),
    [
        ("put.after_copy", put_large),
        ("put.before_publish", put_large),
        ("payload.before_grow", put_beyond_what_is_backed),
        ("copy.midway", gather),
        ("copy.midway", deeds.coalesce),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_others_go_on(client: TransferQueueClient, nursery: Nursery, point: str, deed: object) -> None:
    meta = BatchMeta.concat([client.put(rows([number], 1), partition_id="p") for number in EIGHT])
    stopped = nursery.start(stop_elsewhere, client.session, point, deed, meta)
    assert stopped.receive() == "paused"
    # Each of these takes the write lock, and one takes space.
    mine = client.put(rows(EIGHT, 3), partition_id="mine")
    assert deeds.read(client, mine) == [(number, 3) for number in EIGHT]
    client.clear_samples(mine)
    client.kv_batch_put(["key"], "mine", TensorDict({"x": torch.zeros(1, 2)}, [1]))
    assert client.kv_list("mine") == {"mine": {"key": {}}}
    stopped.pipe.send("go on")
    answer = stopped.receive()
    assert not isinstance(answer, tq.TransferQueueError), answer
    assert stopped.wait() == 0
    assert deeds.read(client, meta) == [(number, 1) for number in EIGHT]
