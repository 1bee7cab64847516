"""What calls do in threads and in other processes, with the client as first argument."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from tensordict import TensorDict

import transferqueue as tq
from tests.support.versioned_rows import rows, versions_of
from transferqueue import BatchMeta, TransferQueueClient
from transferqueue.client.core import as_indexes
from transferqueue.service.compactor import Compactor

Sample = Callable[[list[int], int], tuple[list[int], list[int]]]


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


def coalesce(client: TransferQueueClient, meta: BatchMeta) -> None:
    client.coalesce(meta)


def fetch(client: TransferQueueClient, partition: str, count: int) -> list[int]:
    """Indexes of the rows that this consumer of task "t" got."""
    return list(client.get_meta("x", count, partition, task_name="t").global_indexes)


def claim(client: TransferQueueClient, partition: str, count: int) -> list[int]:
    """Indexes of the rows that this consumer of task "t" claimed."""
    claimed = client.claim("t", partition, fields="x", batch_size=count, lease_s=3600)
    return list(claimed.meta.global_indexes)


def get_and_release(client: TransferQueueClient, meta: BatchMeta) -> bool:
    """A view and its lease, dropped without the interpreter's lock; whether the view showed the first version."""
    partition, indexes = meta.partition_names[0], as_indexes(meta.index_array)
    resolved = client._store.resolve(partition, indexes=indexes, fields=["x"])
    layout = resolved.layout(0, 0)
    assert layout is not None
    view = torch.from_dlpack(resolved.view(0, layout.data_offset, layout.data_nbytes)).view(torch.int64)
    expected = rows(range(8), 1)["x"].flatten()
    same = torch.equal(view, expected)
    del view
    resolved.release()
    return same


@contextmanager
def sampler(
    client: TransferQueueClient, sample: Callable[[list[int], int], tuple[list[int], list[int]]]
) -> Iterator[None]:
    """The client's sampler is the function for a while."""

    class Given(tq.BaseSampler):
        def sample(self, ready_indexes: list[int], batch_size: int, **_: Any) -> tuple[list[int], list[int]]:
            return sample(ready_indexes, batch_size)

    before, client._sampler_prototype = client._sampler(), Given()
    try:
        yield
    finally:
        client._sampler_prototype = before


@contextmanager
def overtaken(client: TransferQueueClient, times: int, others: Callable[[int], Sequence[int]]) -> Iterator[list[int]]:
    """Others take three rows of task "t" between the look and the choice of whoever asks, `times` times.

    `others` takes them (told how many are gone) and returns their indexes; the list collects them all.
    """
    taken: list[int] = []
    depth = 0

    def sample(ready: list[int], size: int) -> tuple[list[int], list[int]]:
        nonlocal depth
        if depth == 0 and len(taken) < 3 * times:
            depth = 1
            taken.extend(others(len(taken)))
            depth = 0
        return ready[:size], ready[:size]

    with sampler(client, sample):
        yield taken


def fill_all_room(client: TransferQueueClient, value: int) -> None:
    """Every free byte of the store is written over, and stays taken until the partition "filler" is cleared. Nothing is
    moved for it: moving reads, and would stop at the point at which a read of this process is to stop."""
    nbytes = client.stats().total_bytes
    with patch.object(Compactor, "rounds", lambda *_: iter(())):
        while nbytes >= 4096:
            try:
                data = TensorDict({"x": torch.full((1, nbytes), value, dtype=torch.uint8)}, [1])
                client.put(data, partition_id="filler", timeout=0)
            except MemoryError:
                nbytes //= 2
