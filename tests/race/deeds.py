"""What calls do in threads and in other processes, with the client as first argument."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tensordict import TensorDict

from tests.support.versioned_rows import rows, versions_of
from transferqueue import BatchMeta, TransferQueueClient


def read(client: TransferQueueClient, meta: BatchMeta, mode: str = "cow") -> list[tuple[int, int]]:
    """(number, version) of each row, all bytes checked."""
    return versions_of(client.get_data(meta, mode=mode))


def overwrite(client: TransferQueueClient, meta: BatchMeta, numbers: Sequence[int], version: int) -> None:
    client.put(rows(numbers, version), metadata=meta.copy())


def overwrite_all(client: TransferQueueClient, meta: BatchMeta, numbers: Sequence[int], version: int) -> None:
    """And whatever was free or becomes free is written over."""
    overwrite(client, meta, numbers, version)
    fill_all_room(client, 0xEE)
    client.clear_partition("filler")


def clear(client: TransferQueueClient, meta: BatchMeta) -> None:
    client.clear_samples(meta)


def fill_all_room(client: TransferQueueClient, value: int) -> None:
    """Every free byte of the store is written over, and stays taken until the partition "filler" is cleared."""
    nbytes = client.stats().total_bytes
    while nbytes >= 4096:
        try:
            data = TensorDict({"x": torch.full((1, nbytes), value, dtype=torch.uint8)}, [1])
            client.put(data, partition_id="filler", timeout=0)
        except MemoryError:
            nbytes //= 2
