"""Rows of sparse blocks in the spill file are written together there, and the room of the rest is free."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tensordict import NonTensorStack, TensorDict

import transferqueue as tq
from tests.support.quiet import without_service
from tests.support.sessions import embedded
from tests.support.space import is_settled
from transferqueue import BatchMeta, TransferQueueClient
from transferqueue.service.compactor import Compactor

pytestmark = pytest.mark.timeout(120)
MIB = 1 << 20
ROWS = 8


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TransferQueueClient]:
    """8 MiB of memory, 16 MiB of disk."""
    options = {"storage.size": 8 * MIB, "spill.dir": str(tmp_path), "spill.size": 16 * MIB, "spill.keep_free": 0}
    with embedded(**options) as session, without_service(session):
        yield session.client
        session.client._store.check()
        assert is_settled(session.client._store)


def put(client: TransferQueueClient, value: int, nbytes: int = MIB) -> BatchMeta:
    data = torch.full((ROWS, nbytes // ROWS), value, dtype=torch.uint8)
    batch = TensorDict({"x": data, "name": NonTensorStack(*[f"{value}"] * ROWS)}, [ROWS])
    return client.put(batch, partition_id="p", timeout=0)


def full(client: TransferQueueClient) -> list[BatchMeta]:
    """Blocks until neither memory nor disk takes another."""
    metas = []
    while True:
        try:
            metas.append(put(client, len(metas)))
        except tq.StorageFullError:
            return metas


def keep(client: TransferQueueClient, metas: list[BatchMeta], kept: int) -> list[BatchMeta]:
    """Clears all but the first `kept` rows of each."""
    client.clear_samples(BatchMeta.concat([meta.select_samples(list(range(kept, ROWS))) for meta in metas]))
    return [meta.select_samples(list(range(kept))) for meta in metas]


def all_there(client: TransferQueueClient, metas: list[BatchMeta]) -> bool:
    found = [client.get_data(meta, mode="copy") for meta in metas]
    return all(
        bool((batch["x"] == value).all()) and batch.get("name").tolist() == [f"{value}"] * len(batch)
        for value, batch in enumerate(found)
    )


def test_the_service_gives_the_disk_back(client: TransferQueueClient) -> None:
    left = keep(client, full(client), 1)
    before = client._store.stats()
    assert before["spilled_bytes"] > 13 * MIB
    assert before["spilled_live_bytes"] < before["spilled_bytes"] // 6
    compactor = Compactor(client._store, 0.25, spilled=True)
    for _ in range(3):
        compactor._next_look_s = 0.0
        while compactor.tick():
            pass
    after = client._store.stats()
    assert after["spilled_bytes"] < 2 * before["spilled_live_bytes"]
    assert after["spill_free_bytes"] > 12 * MIB
    assert after["used_bytes"] == before["used_bytes"]  # they did not come to memory
    assert all_there(client, left)
    trimmed = client.trim()
    assert trimmed > 10 * MIB


def test_a_put_that_finds_memory_and_disk_full_gets_what_sparse_blocks_on_disk_hold(
    client: TransferQueueClient,
) -> None:
    metas = full(client)
    indexes = [meta.index_array for meta in metas]
    resolved = [client._store.resolve("p", indexes=index, fields=None, lease=False) for index in indexes]
    on_disk = [any(each.block_spilled(block) for block in range(each.n_blocks)) for each in resolved]
    assert sum(on_disk) > 12
    del resolved
    # What lies in memory stays whole: nothing there can be compacted.
    left = [keep(client, [meta], 3)[0] if spilled else meta for meta, spilled in zip(metas, on_disk, strict=True)]
    more = [put(client, len(metas) + number) for number in range(6)]
    assert all_there(client, left + more)
