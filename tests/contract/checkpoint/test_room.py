"""A load finds its room as a put does: what lies in the way is moved first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tensordict import TensorDict

import transferqueue as tq
from tests.support.quiet import without_service
from tests.support.sessions import embedded
from tests.support.space import is_settled
from transferqueue import BatchMeta, TransferQueueClient

pytestmark = pytest.mark.timeout(120)
MIB = 1 << 20


@pytest.fixture(scope="module")
def session() -> Iterator[tq.Session]:
    with embedded(**{"storage.size": "32MiB"}) as found, without_service(found):
        yield found


@pytest.fixture
def client(session: tq.Session) -> Iterator[TransferQueueClient]:
    yield session.client
    for partition in session.client.get_partition_list():
        session.client.clear_partition(partition)
    assert is_settled(session.client._store)


def put(client: TransferQueueClient, partition: str, value: int, nbytes: int, rows: int = 1) -> BatchMeta:
    data = torch.full((rows, nbytes // rows), value, dtype=torch.uint8)
    return client.put(TensorDict({"x": data}, [rows]), partition_id=partition, timeout=0)


def values(client: TransferQueueClient, meta: BatchMeta) -> list[int]:
    data = client.get_data(meta, mode="copy")["x"]
    assert bool((data == data[:, :1]).all())
    return data[:, 0].tolist()


def saved(client: TransferQueueClient, place: Path, *, large: int, small: int = 0) -> list[BatchMeta]:
    """A checkpoint of one block of `large` MiB and `small` of 4 KiB; the session is empty again."""
    metas = [put(client, "saved", 77, large * MIB)]
    metas += [put(client, "saved", at, 4096) for at in range(small)]
    client.save_checkpoint(place)
    client.clear_partition("saved")
    return metas


def test_free_pieces_are_joined_for_a_load_that_none_of_them_holds(client: TransferQueueClient, tmp_path: Path) -> None:
    metas = saved(client, tmp_path / "c", large=8, small=20)
    filler = [put(client, "filler", at, MIB) for at in range(28)]
    client.clear_samples(BatchMeta.concat(filler[::2]))
    largest = client._store.stats()["largest_free_extent_bytes"]
    assert largest < 8 * MIB < client.stats().free_bytes
    client.load_checkpoint(tmp_path / "c")
    assert values(client, metas[0]) == [77]
    assert [values(client, meta) for meta in metas[1:]] == [[at] for at in range(20)]
    assert client.get_partition_list() == ["saved"]
    client._store.check()


def test_sparse_blocks_are_compacted_for_a_load(client: TransferQueueClient, tmp_path: Path) -> None:
    metas = saved(client, tmp_path / "c", large=12)
    filler = [put(client, "filler", at, 2 * MIB, rows=8) for at in range(15)]
    client.clear_samples(BatchMeta.concat([meta.select_samples([1, 2, 3, 5, 6, 7]) for meta in filler]))
    assert client.stats().free_bytes < 12 * MIB
    client.load_checkpoint(tmp_path / "c")
    assert values(client, metas[0]) == [77]
    client._store.check()


def test_what_somebody_reads_stays_and_the_load_is_refused(client: TransferQueueClient, tmp_path: Path) -> None:
    saved(client, tmp_path / "c", large=8)
    filler = [put(client, "filler", at, MIB) for at in range(28)]
    client.clear_samples(BatchMeta.concat(filler[::2]))
    held = [client.get_data(meta) for meta in filler[1::2]]
    with pytest.raises(tq.StorageFullError) as caught:
        client.load_checkpoint(tmp_path / "c")
    assert caught.value.wanted_bytes is not None
    assert caught.value.wanted_bytes >= 8 * MIB
    assert client.stats().pending_bytes == 0
    assert [int(batch["x"][0, 0]) for batch in held] == list(range(1, 28, 2))
    client._store.check()
    del held
