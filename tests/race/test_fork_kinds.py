"""Views and clients in processes of every kind: the parent drops its views at once and has their space written over,
the child sleeps and then compares bytes."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.connection import Connection
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from torch.utils.data import DataLoader

from tests.race import deeds
from tests.race.fork_workers import ROWS, ClientRows, HeldRows, batch, read_later, send_later
from tests.race.paused import Call
from tests.support.sessions import Forked, in_child, wait_for
from transferqueue import BatchMeta, TransferQueueClient

pytestmark = pytest.mark.timeout(180)
METHODS = ("fork", "forkserver", "spawn")
DELAY_S = 1.0


def put(client: TransferQueueClient, partition: str, version: int) -> BatchMeta:
    return client.put(TensorDict({"x": batch(version)}, [ROWS]), partition_id=partition)


@pytest.fixture
def stable(client: TransferQueueClient) -> BatchMeta:
    return put(client, "stable", 0)


@pytest.fixture
def held(client: TransferQueueClient) -> Iterator[list[torch.Tensor]]:
    """Views of rows that are cleared already; only what holds them keeps them."""
    meta = put(client, "held", 1)
    views = [client.get_data(meta, mode=mode)["x"] for mode in ("cow", "shared")]
    client.clear_partition("held")
    yield views
    views.clear()


def drop_and_reuse(client: TransferQueueClient, held: list[torch.Tensor]) -> None:
    held.clear()
    client._store.reclaim()
    deeds.fill_all_room(client, 0xEE)
    client.clear_partition("filler")


def context_of(method: str) -> Any:
    context: Any = multiprocessing.get_context(method)
    if method == "forkserver":
        context.set_forkserver_preload(["torch", "transferqueue.client", "tests.race.fork_workers"])
    return context


# -- os.fork -----------------------------------------------------------------------------------------------------------


def test_forks_of_every_shape_whose_parent_drops_at_once(
    client: TransferQueueClient, stable: BatchMeta, held: list[torch.Tensor]
) -> None:
    """Plain, by a thread, nested, by a daemon's two forks, and a child whose parent dies at once."""
    name = client.session

    def later(pipe: Connection) -> None:
        ours, fine = read_later(name, stable, held, DELAY_S)
        pipe.send((len(ours), fine))

    def nested(pipe: Connection) -> None:
        views = list(held)

        def grandchild() -> None:
            ours, fine = read_later(name, stable, views, DELAY_S)
            pipe.send((len(ours), fine))

        child = Forked(lambda _: grandchild())
        held.clear()
        views.clear()
        assert child.join() == 0

    def daemon(pipe: Connection) -> None:
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                later(pipe)

    def orphan(pipe: Connection) -> None:
        if os.fork() == 0:
            later(pipe)

    shapes: list[Callable[[Connection], None]] = [later, nested, daemon, orphan]
    children = [Forked(shape) for shape in shapes] + [Call(lambda: Forked(later)).result()]
    drop_and_reuse(client, held)
    assert [child.hear() for child in children] == [(2, True)] * len(children)
    assert [child.join() for child in children] == [0] * len(children)
    wait_for(
        lambda: client._store.reap() is not None and len(client.stats().clients) == 1, what="the end of the orphans"
    )
    client._store.reclaim()
    assert client.stats().retired_bytes == 0


def test_forks_and_programs_amid_threads_that_get_and_drop(client: TransferQueueClient, stable: BatchMeta) -> None:
    """Children by fork, by fork and exec and by the C library, from several threads at once."""
    stop = False

    def busy() -> int:
        turns = 0
        while not stop:
            view = client.get_data(stable)["x"]
            view[0].fill_(turns)
            assert torch.equal(view[1:], batch(0)[1:])
            client.clear_samples(put(client, "busy", turns))
            turns += 1
        return turns

    def child() -> None:
        assert torch.equal(client.get_data(stable)["x"], batch(0))

    def forks() -> None:
        for _ in range(8):
            assert in_child(child) == 0

    def programs() -> None:
        for _ in range(8):
            pid = os.posix_spawn("/bin/true", ["true"], {})
            assert os.waitpid(pid, 0)[1] == 0
            pid = os.fork()
            if pid == 0:
                os.execv("/bin/true", ["true"])
            assert os.waitpid(pid, 0)[1] == 0

    threads = [Call(busy) for _ in range(2)]
    starters = [Call(forks), Call(programs), Call(forks)]
    try:
        for starter in starters:
            starter.result()
    finally:
        stop = True
    assert all(thread.result() > 0 for thread in threads)


# -- multiprocessing ---------------------------------------------------------------------------------------------------


def bare(context: Any, arguments: tuple[Any, ...]) -> Callable[[], tuple[int, bool]]:
    ours, theirs = context.Pipe()
    process = context.Process(target=send_later, args=(theirs, *arguments))
    process.start()
    theirs.close()

    def answer() -> tuple[int, bool]:
        assert ours.poll(60), "the process says nothing"
        found: tuple[int, bool] = ours.recv()
        process.join()
        assert process.exitcode == 0
        process.close()
        return found

    return answer


def pooled(context: Any, arguments: tuple[Any, ...]) -> Callable[[], tuple[int, bool]]:
    pool = context.Pool(1)
    results = [pool.apply_async(read_later, arguments) for _ in range(2)]
    # The arguments are pickled by a thread of the pool: they must not be dropped before.
    wait_for(lambda: pool._taskqueue.empty())
    time.sleep(0.05)

    def answer() -> tuple[int, bool]:
        found = [result.get(60) for result in results]
        pool.close()
        pool.join()
        return checked(found)

    return answer


def executed(context: Any, arguments: tuple[Any, ...]) -> Callable[[], tuple[int, bool]]:
    executor = ProcessPoolExecutor(1, mp_context=context)
    futures = [executor.submit(read_later, *arguments) for _ in range(2)]

    def answer() -> tuple[int, bool]:
        found = [future.result(60) for future in futures]
        executor.shutdown()
        return checked(found)

    return answer


def checked(found: list[tuple[list[torch.Tensor], bool]]) -> tuple[int, bool]:
    """The views that came back are tensors of this process now."""
    assert all(torch.equal(view, batch(1)) for views, _ in found for view in views)
    counts = {len(views) for views, _ in found}
    assert len(counts) == 1
    return counts.pop(), all(fine for _, fine in found)


KINDS = {"Process": bare, "Pool": pooled, "Executor": executed}
# A spawned process imports torch: for every day the one of the DataLoader below is enough.
SPAWNED = [pytest.param("spawn", kind, marks=pytest.mark.soak) for kind in KINDS]
COMBINATIONS = [(method, kind) for method in METHODS[:2] for kind in KINDS]


@pytest.mark.parametrize(("method", "kind"), [*COMBINATIONS, *SPAWNED])
def test_multiprocessing(
    client: TransferQueueClient, stable: BatchMeta, held: list[torch.Tensor], method: str, kind: str
) -> None:
    passed = list(held)
    answer = KINDS[kind](context_of(method), (client.session, stable, passed, 0.3))
    if kind == "Executor":
        passed = []  # its queue pickles when it likes: the arguments are its own
        held.clear()
    else:
        passed.clear()
        drop_and_reuse(client, held)
    assert answer() == (2, True)
    if kind == "Executor":
        drop_and_reuse(client, held)


# -- DataLoader --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_data_loader_workers(
    client: TransferQueueClient, stable: BatchMeta, held: list[torch.Tensor], method: str
) -> None:
    """Workers have the dataset's views, return rows of them and of their own gets, for two epochs."""
    dataset = HeldRows(client.session, stable, list(held), 0.3)
    workers = 1 if method == "spawn" else 2
    loader: DataLoader[Any] = DataLoader(
        dataset,
        batch_size=2,
        num_workers=workers,
        multiprocessing_context=context_of(method),
        persistent_workers=True,
        pin_memory=False,
    )
    for epoch in range(2):
        iterator = iter(loader)
        if epoch == 0:
            dataset.held = []
            drop_and_reuse(client, held)
        given, got = zip(*iterator, strict=True)
        assert torch.equal(torch.cat(given), batch(1))
        assert torch.equal(torch.cat(got), batch(0))
    del iterator, loader
    wait_for(lambda: client._store.reap() is not None and len(client.stats().clients) == 1, what="the workers' end")


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize(
    ("method", "way", "workers", "epochs"),
    [
        ("fork", "client", 4, 3),
        ("fork", "name", 2, 3),
        ("forkserver", "client", 3, 2),
        ("spawn", "client", 1, 1),
        pytest.param("spawn", "name", 4, 4, marks=pytest.mark.soak),
    ],
)
def test_fresh_data_loader_workers_each_epoch(
    client: TransferQueueClient,
    stable: BatchMeta,
    held: list[torch.Tensor],
    method: str,
    way: str,
    workers: int,
    epochs: int,
) -> None:
    """While the parent holds and writes views of its own, and keeps what it was given over all epochs."""
    given: list[torch.Tensor] = []
    mine = client.get_data(stable)["x"]
    mine.fill_(-1)
    for _ in range(epochs):
        loader: DataLoader[Any] = DataLoader(
            ClientRows(stable, client.session, client if way == "client" else None),
            batch_size=2,
            num_workers=workers,
            multiprocessing_context=context_of(method),
            persistent_workers=False,
        )
        for numbers, got in loader:
            assert torch.equal(got, batch(0)[numbers] + 1)
            given += [got, client.get_data(stable.select_samples(numbers.tolist()))["x"]]
            got.fill_(-2)
    assert torch.equal(torch.cat(given[1::2]), torch.cat([batch(0)] * epochs))
    assert bool((mine == -1).all())
    assert all(torch.equal(view, batch(1)) for view in held)
    wait_for(lambda: client._store.reap() is not None and len(client.stats().clients) == 1, what="the workers' end")
