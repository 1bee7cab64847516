"""Round after round of the same thing: as many descriptors, mappings, files and clients afterwards as before."""

from __future__ import annotations

import gc
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from torch.utils.data import DataLoader

import transferqueue as tq
from tests.race.fork_workers import ROWS, WIDTH, HeldRows, batch
from tests.support.nursery import Nursery
from tests.support.sessions import in_child, wait_for
from transferqueue import BatchMeta, TransferQueueClient
from transferqueue.storage.attachment import attach

pytestmark = pytest.mark.timeout(3600)
# How far the number of mappings may be from what it was: those of the allocators of the C library and of Python come
# and go, and of views that died up to 64 are kept for the next read.
SLACK_MAPPINGS = 12
KEPT_MAPPINGS = 64


class Figures:
    """What a process has open and mapped, and what lies in shared memory, at one moment."""

    def __init__(self, client: TransferQueueClient) -> None:
        gc.collect()
        client._store.reap()  # what children left who ended with views; the service does it every second
        self.descriptors = len(os.listdir("/proc/self/fd"))
        maps = Path("/proc/self/maps").read_text().splitlines()
        self.mappings = len(maps)
        self.of_session = sum(client.session in line for line in maps)
        self.files = sum(len(files) for _, _, files in os.walk(f"/dev/shm/tq-{os.getuid()}-{client.session}"))
        self.threads = len(os.listdir("/proc/self/task"))

    def __repr__(self) -> str:
        return str(self.__dict__)

    def no_more_than(self, before: Figures) -> bool:
        return (
            self.descriptors <= before.descriptors
            and self.of_session <= before.of_session + KEPT_MAPPINGS
            and self.mappings - self.of_session <= before.mappings - before.of_session + SLACK_MAPPINGS
            and self.files <= before.files
            and self.threads <= before.threads
        )


def stays_flat(client: TransferQueueClient, rounds: int, one: Callable[[int], object], warm_up: int = 30) -> None:
    for number in range(warm_up):
        one(number)
    before = Figures(client)
    for number in range(rounds):
        one(number)
    # What ends, ends a moment later: the keeper's work, a worker process.
    wait_for(lambda: Figures(client).no_more_than(before), timeout_s=10, what=f"{before}, now {Figures(client)}:")


def long_and_short(short: int, long: int = 10_000) -> Any:
    return pytest.mark.parametrize("rounds", [short, pytest.param(long, marks=pytest.mark.soak)])


@pytest.fixture
def meta(client: TransferQueueClient) -> BatchMeta:
    return client.put(TensorDict({"x": batch(0)}, [ROWS]), partition_id="p")


@long_and_short(300)
def test_get_and_drop(client: TransferQueueClient, meta: BatchMeta, rounds: int) -> None:
    kept: list[Any] = []

    def one(number: int) -> None:
        view = client.get_data(meta, mode=("cow", "shared", "copy")[number % 3])["x"]
        if number % 3 != 1:
            view[number % ROWS].fill_(number)
        kept.append(view[1:3])  # an alias of some rows lives for a few rounds more
        del kept[:-4]

    stays_flat(client, rounds, one)
    kept.clear()


@long_and_short(300)
def test_put_and_clear(client: TransferQueueClient, rounds: int) -> None:
    data = TensorDict({"x": batch(1), "small": torch.arange(ROWS)}, [ROWS])

    def one(number: int) -> None:
        client.put(data, partition_id=f"q{number % 3}")
        made = client.put(data[:1], partition_id="small")
        client.clear_samples(made)
        client.clear_partition(f"q{number % 3}")

    stays_flat(client, rounds, one)


@long_and_short(200)
def test_alloc_and_commit_or_abort(client: TransferQueueClient, rounds: int) -> None:
    def one(number: int) -> None:
        allocation = client.alloc({"z": ((WIDTH,), torch.int64)}, partition_id="z", batch_size=ROWS)
        kept = allocation.data["z"] if number % 2 else None
        allocation.data["z"][0].fill_(number)
        if number % 3 == 0:
            allocation.abort()
        else:
            client.clear_samples(allocation.commit())
        if kept is not None:
            kept[1].fill_(-number)

    stays_flat(client, rounds, one)


@long_and_short(40)
def test_fork_and_exit(client: TransferQueueClient, meta: BatchMeta, rounds: int) -> None:
    held = client.get_data(meta)["x"]

    def child() -> None:
        assert held[7, -1] == ROWS * WIDTH - 1
        client.get_data(meta)["x"].fill_(1)

    def one(number: int) -> None:
        if number % 4:
            assert in_child(child if number % 2 else tq.close) == 0
        else:
            subprocess.run(["/bin/true"], check=True)

    stays_flat(client, rounds, one, warm_up=10)
    assert len(client.stats().clients) == 1


@long_and_short(100)
def test_attach_and_close(client: TransferQueueClient, meta: BatchMeta, rounds: int) -> None:
    """A second hold on the session, as a tool takes it, with a lease file, descriptors and mappings of its own."""

    def one(_: int) -> None:
        attachment = attach(client.session, observer=True)
        assert attachment.store.partitions() == ["p"]
        attachment.detach()

    stays_flat(client, rounds, one)
    assert len(client.stats().clients) == 1


def attach_and_leave(pipe: Any, name: str, meta: BatchMeta, rounds: int) -> None:
    """A process that joins, reads and leaves, again and again; its figures at the end."""

    def one(number: int) -> None:
        client = tq.attach(name).client
        view = client.get_data(meta)["x"]
        assert view[0, 1] == 1
        if number % 2:
            del view
        tq.close()

    for number in range(8):
        one(number)
    keep = tq.attach(name)
    before = Figures(keep.client)
    tq.close()
    for number in range(rounds):
        one(number)
    keep = tq.attach(name)
    wait_for(lambda: Figures(keep.client).no_more_than(before), timeout_s=10, what=f"{before}")
    tq.close()
    pipe.send("flat")


@pytest.mark.parametrize("rounds", [10, pytest.param(1_000, marks=pytest.mark.soak)])
def test_processes_that_attach_and_close_stay_flat_and_harm_nobody(
    client: TransferQueueClient, meta: BatchMeta, nursery: Nursery, rounds: int
) -> None:
    children = [nursery.start(attach_and_leave, client.session, meta, rounds) for _ in range(2)]
    assert [child.receive(600) for child in children] == ["flat", "flat"]
    assert [child.wait() for child in children] == [0, 0]
    assert torch.equal(client.get_data(meta)["x"], batch(0)), "the creator's session stands"
    assert len(client.stats().clients) == 1


@pytest.mark.parametrize("reads", [160, pytest.param(1_600, marks=pytest.mark.soak)])
def test_field_case_122_reading_sets_nothing_up_anew(client: TransferQueueClient, meta: BatchMeta, reads: int) -> None:
    """Mappings are made and pages mapped once: later reads of one partition fault in next to nothing."""

    def one(_: int) -> None:
        view = client.get_data(meta)["x"]
        assert view[::1, ::512].sum() > 0

    for _ in range(20):
        one(0)
    before, opened = faults(), Figures(client)
    for number in range(reads):
        one(number)
    pages = ROWS * WIDTH * 8 // 4096
    assert faults() - before < reads * pages / 10, "less than a tenth of the pages that were looked at"
    assert Figures(client).no_more_than(opened)


def faults() -> int:
    """Page faults of this process so far."""
    return int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[7])


@pytest.mark.parametrize("epochs", [6, pytest.param(10_000, marks=pytest.mark.soak)])
@pytest.mark.parametrize("persistent", [True, False])
def test_data_loader_epochs(client: TransferQueueClient, meta: BatchMeta, epochs: int, persistent: bool) -> None:
    held = client.get_data(meta)["x"]
    loaders: list[DataLoader[Any]] = [
        DataLoader(
            HeldRows(client.session, meta, [held], 0.0),
            batch_size=4,
            num_workers=1,
            multiprocessing_context="fork",
            persistent_workers=persistent,
        )
    ]

    def one(_: int) -> None:
        for given, got in loaders[0]:
            assert given[0, 1] - given[0, 0] == got[0, 1] - got[0, 0] == 1

    # Workers afresh take 30 ms an epoch.
    stays_flat(client, epochs if persistent else max(epochs // 10, 4), one, warm_up=3)
    loaders.clear()
    wait_for(lambda: client._store.reap() is not None and len(client.stats().clients) == 1, what="the workers' end")
