"""Views of one block beside one another, and deleters wherever Python runs them."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from tests.race import deeds
from tests.race.paused import Call, stop_elsewhere
from tests.support.nursery import Nursery
from tests.support.sessions import run_python, wait_for
from tests.support.versioned_rows import rows, versions_of
from transferqueue import BatchMeta, TransferQueueClient

pytestmark = pytest.mark.timeout(120)
EIGHT = list(range(8))


def versions(version: int) -> list[tuple[int, int]]:
    return [(number, version) for number in EIGHT]


# -- two gets of one block -----------------------------------------------------------------------------------------


def here(function: Callable[[], Any]) -> Any:
    return function()


def in_a_thread(function: Callable[[], Any]) -> Any:
    return Call(function).result()


@pytest.fixture(params=[here, in_a_thread], ids=["one thread", "two threads"])
def second(request: pytest.FixtureRequest) -> Callable[[Callable[[], Any]], Any]:
    """Runs the second get."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def meta(client: TransferQueueClient) -> BatchMeta:
    return client.put(rows(EIGHT, 1), partition_id="p")


def test_two_gets_are_independent(client: TransferQueueClient, meta: BatchMeta, second: Any) -> None:
    first = client.get_data(meta)
    other = second(lambda: client.get_data(meta))
    first["x"].fill_(-1)
    assert versions_of(other) == versions(1)
    other["x"].fill_(-2)
    assert first["x"].unique().tolist() == [-1]
    assert versions_of(client.get_data(meta)) == versions(1)


def test_a_get_after_the_first_was_written_in_place(client: TransferQueueClient, meta: BatchMeta, second: Any) -> None:
    first = client.get_data(meta)
    first["x"].mul_(-3)
    first["n"].zero_()
    assert versions_of(second(lambda: client.get_data(meta))) == versions(1)


def test_a_get_after_one_field_of_the_first_was_kept(client: TransferQueueClient, meta: BatchMeta, second: Any) -> None:
    data = TensorDict({name: torch.full((8, 4096), at) for at, name in enumerate("ab")}, [8])
    two = client.put(data, partition_id="q")
    first = client.get_data(two)
    kept = first["a"]
    kept.fill_(-1)
    first["b"].fill_(-2)
    del first
    other = second(lambda: client.get_data(two))
    assert other["a"].unique().tolist() == [0]
    assert other["b"].unique().tolist() == [1]
    assert kept.unique().tolist() == [-1]
    other["a"].fill_(-5)
    assert kept.unique().tolist() == [-1]


def test_a_get_after_a_row_of_the_first_was_kept(client: TransferQueueClient, meta: BatchMeta, second: Any) -> None:
    first = client.get_data(meta)
    kept = first["x"][3]
    kept.fill_(-7)
    del first
    assert versions_of(second(lambda: client.get_data(meta))) == versions(1)
    assert kept.unique().tolist() == [-7]


def test_a_written_view_stays_what_it_is_after_clear_and_reuse(
    client: TransferQueueClient, meta: BatchMeta, second: Any
) -> None:
    """Its unwritten pages show the stored bytes still, although every free byte of the store is someone else's."""
    first = client.get_data(meta)["x"]
    first[2].fill_(-1)
    second(lambda: client.clear_partition("p"))
    client._store.reclaim()
    deeds.fill_all_room(client, 0xEE)
    expected = rows(EIGHT, 1)["x"]
    expected[2] = -1
    assert torch.equal(first, expected)


def test_many_threads_write_into_what_they_read(client: TransferQueueClient, meta: BatchMeta) -> None:
    def work(number: int) -> None:
        for turn in range(30):
            found = client.get_data(meta)
            assert versions_of(found) == versions(1)
            found["x"].fill_(-number)
            found["x"][turn % 8].add_(turn)
            if turn % 3 == 0:
                del found

    for call in [Call(work, number) for number in range(6)]:
        call.result()


# -- deleters --------------------------------------------------------------------------------------------------


class InACycle:
    """Holds a view and itself: only the garbage collector drops it."""

    def __init__(self, view: Any) -> None:
        self.view = view
        self.itself = self


def test_dropped_by_the_garbage_collector_inside_a_put(client: TransferQueueClient, meta: BatchMeta) -> None:
    """Collected while a put is under way: in the parser that it calls, with rows of the view already cleared."""
    gc.disable()
    try:
        InACycle(client.get_data(meta))
        client.clear_samples(meta)

        def parser(columns: dict[str, Any]) -> dict[str, Any]:
            assert client._store.stats()["leased_bytes"] > 0
            gc.collect()
            assert client._store.stats()["leased_bytes"] == 0
            return columns

        made = client.put(TensorDict({"y": torch.arange(8)}, [8]), partition_id="q", data_parser=parser)
    finally:
        gc.enable()
    assert client.get_data(made)["y"].tolist() == EIGHT


def test_dropped_by_the_garbage_collector_inside_a_sampler(client: TransferQueueClient, meta: BatchMeta) -> None:
    gc.disable()
    try:
        InACycle(client.get_data(meta))

        def sample(ready: list[int], size: int) -> tuple[list[int], list[int]]:
            gc.collect()
            return ready[:size], ready[:size]

        with deeds.sampler(client, sample):
            taken = client.get_meta("x", 3, "p", task_name="t")
    finally:
        gc.enable()
    assert taken.size == 3


def test_collections_at_every_turn_of_every_call(client: TransferQueueClient) -> None:
    """With a threshold of one, the collector runs inside the calls themselves, on whatever thread allocates."""
    before = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:

        def work(partition: str) -> None:
            for turn in range(4):
                meta = client.put(rows([1, 2], turn), partition_id=partition)
                InACycle(client.get_data(meta))
                InACycle(client.alloc({"x": ((10_000,), torch.int64)}, partition_id=partition, batch_size=1))
                client.put(rows([1, 2], turn + 1), metadata=meta)
                assert versions_of(client.get_data(meta)) == [(1, turn + 1), (2, turn + 1)]
                client.clear_samples(meta)

        for call in [Call(work, f"p{number}") for number in range(2)]:
            call.result()
    finally:
        gc.set_threshold(*before)
    gc.collect()


def test_a_finalizer_that_calls_the_client(client: TransferQueueClient, meta: BatchMeta) -> None:
    """Views die in the collector, and so does an object whose `__del__` and weak reference use the client."""
    seen: list[Any] = []

    class Nosy(InACycle):
        def __del__(self) -> None:
            seen.append(client.get_data(meta)["n"][0].tolist())
            client.put(TensorDict({"z": torch.arange(2)}, [2]), partition_id="z")

    gc.disable()
    try:
        nosy = Nosy(client.get_data(meta))
        reference = weakref.finalize(nosy.view["x"], lambda: seen.append(client.get_partition_list()))
        del nosy
        gc.collect()
    finally:
        gc.enable()
    assert not reference.alive
    assert [0, 1] in seen
    assert ["p"] in seen
    assert client.get_partition_list() == ["p", "z"]


@pytest.mark.parametrize("point", ["view.before_unmap", "view.unmapped", "lease.before_release"])
def test_a_deleter_that_takes_its_time_keeps_nobody(
    client: TransferQueueClient, meta: BatchMeta, nursery: Nursery, point: str
) -> None:
    """A process stands inside a drop; others get, put, clear and drop, and its block is not reused under it."""
    slow = nursery.start(stop_elsewhere, client.session, point, deeds.get_and_release, meta)
    assert slow.receive() == "paused"
    assert deeds.read(client, meta) == versions(1)
    deeds.overwrite(client, meta, EIGHT, 2)
    client._store.reclaim()
    deeds.fill_all_room(client, 0xEE)
    assert deeds.read(client, meta) == versions(2)
    assert client._store.stats()["retired_bytes"] > 0
    slow.pipe.send("go on")
    assert slow.receive() is True
    assert slow.wait() == 0


def test_views_die_on_another_thread_than_they_were_made_on(client: TransferQueueClient, meta: BatchMeta) -> None:
    handed: list[Any] = [client.get_data(meta) for _ in range(20)]
    client.clear_samples(meta)
    threads = [threading.Thread(target=handed.pop) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wait_for(lambda: client._store.stats()["leased_bytes"] == 0, what="the end of the leases")


def test_views_alive_at_the_end_of_the_interpreter() -> None:
    """In module globals, in cycles, in a thread that still runs, in a C++ object: no crash, nothing stays behind."""
    run_python(
        """
import threading, time, torch
from tensordict import TensorDict
import transferqueue as tq
session = tq.init(**{"storage.size": "64MiB"})
meta = tq.put(TensorDict({"x": torch.arange(80_000).reshape(8, -1)}, [8]), partition_id="p")
as_global = tq.get_data(meta)
shared = tq.get_data(meta, mode="shared")["x"]
class Cycle: pass
cycle = Cycle(); cycle.itself, cycle.view = cycle, tq.get_data(meta)["x"]
class Late:
    def __init__(self): self.view = tq.get_data(meta)["x"]
    def __del__(self): self.view = None
late = Late()
parameter = torch.nn.Parameter(tq.get_data(meta)["x"].float(), requires_grad=True)
node = (parameter * tq.get_data(meta)["x"]).sum()
def hold():
    mine = tq.get_data(meta)
    time.sleep(100)
threading.Thread(target=hold, daemon=True).start()
allocation = tq.alloc({"x": ((50_000,), torch.int64)}, partition_id="q", batch_size=1)
kept = allocation.data["x"]
time.sleep(0.2)
"""
    )
