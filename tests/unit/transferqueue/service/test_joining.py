"""Free room in pieces, each smaller than what lies between them, becomes one for the put that needs it."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
import torch
from tensordict import TensorDict

import transferqueue as tq
from tests.race.paused import settled
from tests.support.quiet import without_service
from tests.support.sessions import embedded
from transferqueue import BatchMeta, TransferQueueClient
from transferqueue.service.joining import Joining
from transferqueue.service.moving import Mover

KIB = 1 << 10
MIB = 1 << 20


@pytest.fixture
def client() -> Iterator[TransferQueueClient]:
    with embedded(**{"storage.size": "16MiB"}) as session, without_service(session):
        yield session.client
        for partition in session.client.get_partition_list():
            session.client.clear_partition(partition)
        settled(session.client)
        assert session.client._store.stats()["headroom_used_bytes"] == 0


def pattern(number: int, nbytes: int) -> torch.Tensor:
    return (torch.arange(nbytes // 8) + number * 1_000_003).unsqueeze(0)


def put(client: TransferQueueClient, number: int, nbytes: int) -> BatchMeta:
    return client.put(TensorDict({"x": pattern(number, nbytes)}, [1]), partition_id="p", timeout=0)


def with_gaps(client: TransferQueueClient, sizes: list[tuple[int, int]]) -> list[BatchMeta]:
    """Rows of these sizes, each with a gap behind it, in a store that is full but for the gaps."""
    kept, gaps = [], []
    for number, (nbytes, gap) in enumerate(sizes):
        kept.append(put(client, number, nbytes))
        if gap:
            gaps.append(put(client, 0, gap))
    while left := client._store.stats()["largest_free_extent_bytes"]:
        put(client, 0, left)
    client.clear_samples(BatchMeta.concat(gaps))
    return kept


def assert_kept(client: TransferQueueClient, kept: list[BatchMeta], sizes: list[tuple[int, int]]) -> None:
    for number, (meta, (nbytes, _)) in enumerate(zip(kept, sizes, strict=True)):
        assert torch.equal(client.get_data(meta, mode="copy")["x"], pattern(number, nbytes))
    client._store.check()
    assert client._store.stats()["pending_bytes"] == 0


@pytest.mark.parametrize(
    "sizes",
    [
        [(1024 * KIB, 896 * KIB)] * 8,
        [(256 * KIB, 192 * KIB)] * 30,
        [(100_000, 65_536)] * 90,
        [(1024 * KIB, 64 * KIB)] * 3 + [(64 * KIB, 512 * KIB)] * 8,
        [(40_000, 4_096)] * 20 + [(4_096, 40_000)] * 20 + [(128 * KIB, 100_000)] * 20,
    ],
    ids=["mebibytes", "quarters", "off the page", "uneven", "small"],
)
def test_all_that_is_free_becomes_one_piece(client: TransferQueueClient, sizes: list[tuple[int, int]]) -> None:
    kept = with_gaps(client, sizes)
    free = client._store.stats()["free_bytes"]
    largest = client._store.stats()["largest_free_extent_bytes"]
    assert largest < free / 2
    wanted = free * 15 // 16 // 4096 * 4096
    put(client, 7, wanted)
    assert_kept(client, kept, sizes)


@pytest.mark.parametrize("seed", range(6))
def test_whatever_the_sizes_are(client: TransferQueueClient, seed: int) -> None:
    """A put fails only where the run would cost more than three bytes for each that is wanted."""
    chance = random.Random(seed)
    sizes = [(chance.randrange(1, 40) * 16 * KIB, chance.choice([0, 1, 2, 30]) * 16 * KIB) for _ in range(40)]
    total = 0
    sizes = [size for size in sizes if (total := total + sum(size)) < 15 * MIB]
    kept = with_gaps(client, sizes)
    wanted = client._store.stats()["free_bytes"] * 7 // 8 // 4096 * 4096
    possible = client._store.cheapest_run(wanted, 3 * wanted)
    try:
        put(client, 7, wanted)
    except tq.StorageFullError:
        assert possible is None
    assert_kept(client, kept, sizes)


def test_a_row_that_somebody_reads_stays_and_the_others_slide_beside_it(client: TransferQueueClient) -> None:
    sizes = [(768 * KIB, 512 * KIB)] * 12
    kept = with_gaps(client, sizes)
    view = client.get_data(kept[3])["x"]
    with pytest.raises(tq.StorageFullError):
        put(client, 7, 12 * 512 * KIB)
    put(client, 7, 6 * 512 * KIB)
    assert torch.equal(view, pattern(3, 768 * KIB))
    assert_kept(client, kept, sizes)
    del view


def test_who_takes_the_free_room_amid_a_slide_has_it(
    client: TransferQueueClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = [(1024 * KIB, 896 * KIB)] * 8
    kept = with_gaps(client, sizes)
    aside, taken = Mover.move_aside, []

    def move_aside(self: Mover, batch: object) -> None:
        aside(self, batch)  # type: ignore[arg-type]
        taken.append(put(client, 50 + len(taken), 1792 * KIB))

    monkeypatch.setattr(Mover, "move_aside", move_aside)
    joining = Joining(client._store, Mover(client._store))
    assert joining.slide(4 * MIB)
    monkeypatch.undo()
    assert len(taken) == 1
    assert torch.equal(client.get_data(taken[0], mode="copy")["x"], pattern(50, 1792 * KIB))
    assert_kept(client, kept, sizes)
    # What went aside is in the headroom, and leaves it when there is room.
    put(client, 7, 3 * MIB)
    assert_kept(client, kept, sizes)
    client.clear_partition("p")
