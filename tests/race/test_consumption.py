"""Samplers that race: a row goes to one of them, and one that fails changes nothing."""

from __future__ import annotations

import threading
from collections import Counter
from multiprocessing.connection import Connection

import pytest
import torch
from tensordict import TensorDict

import transferqueue as tq
from tests.race import deeds
from tests.race.paused import Call, stop_elsewhere
from tests.support.nursery import Nursery
from transferqueue import TransferQueueClient

pytestmark = pytest.mark.timeout(120)


def put_rows(client: TransferQueueClient, count: int) -> tq.BatchMeta:
    return client.put(TensorDict({"x": torch.arange(count)}, [count]), partition_id="p")


def consumed(client: TransferQueueClient, task: str = "t") -> int:
    _, marks = client.get_consumption_status(task, "p")
    assert marks is not None
    return int(marks.sum())


def take_all(client: TransferQueueClient, batch: int) -> list[int]:
    taken: list[int] = []
    while True:
        found = client.get_meta("x", batch, "p", task_name="t", polling_mode=True, partial=True)
        if not found.size:
            return taken
        taken += found.global_indexes


def take_in_process(pipe: Connection, session: str, batch: int) -> None:
    client = tq.init(session=session).client
    pipe.send("ready")
    pipe.recv()
    pipe.send(take_all(client, batch))
    tq.close()


def test_one_overtaken_between_its_choice_and_its_commit_chooses_again(client: TransferQueueClient) -> None:
    meta = put_rows(client, 8)
    turns: list[list[int]] = []
    others: list[int] = []

    def sample(ready: list[int], size: int) -> tuple[list[int], list[int]]:
        turns.append(list(ready))
        if len(turns) == 1:
            # Another consumer takes the very rows that this one is about to choose.
            others.extend(client.get_meta("x", size, "p", task_name="t").global_indexes)
        return ready[:size], ready[:size]

    with deeds.sampler(client, sample):
        mine = client.get_meta("x", 3, "p", task_name="t").global_indexes
    assert others == meta.global_indexes[:3]
    assert mine == meta.global_indexes[3:6]
    assert consumed(client) == 6
    assert turns[-1] == meta.global_indexes[3:]


def test_one_overtaken_five_times_comes_through(client: TransferQueueClient) -> None:
    put_rows(client, 24)
    with deeds.overtaken(client, 5, lambda _: client.get_meta("x", 3, "p", task_name="t").global_indexes) as taken:
        mine = client.get_meta("x", 3, "p", task_name="t").global_indexes
    assert len(taken) == 15
    assert len({*taken, *mine}) == 18
    assert consumed(client) == 18


def test_rows_cleared_between_choice_and_commit_are_not_handed_out(client: TransferQueueClient) -> None:
    meta = put_rows(client, 8)
    cleared = False

    def sample(ready: list[int], size: int) -> tuple[list[int], list[int]]:
        nonlocal cleared
        if not cleared:
            cleared = True
            client.clear_samples(meta.select_samples([0, 1]))
        return ready[:size], ready[:size]

    with deeds.sampler(client, sample):
        mine = client.get_meta("x", 4, "p", task_name="t")
    assert mine.global_indexes == meta.global_indexes[2:6]
    assert client.get_data(mine)["x"].tolist() == [2, 3, 4, 5]


def test_a_reset_between_choice_and_commit(client: TransferQueueClient) -> None:
    """What was chosen before the reset does not come out of it half consumed."""
    meta = put_rows(client, 6)
    client.get_meta("x", 3, "p", task_name="t")
    reset = False

    def sample(ready: list[int], size: int) -> tuple[list[int], list[int]]:
        nonlocal reset
        if not reset:
            reset = True
            client.reset_consumption("p", "t")
        return ready[:size], ready[:size]

    with deeds.sampler(client, sample):
        mine = client.get_meta("x", 3, "p", task_name="t")
    assert mine.global_indexes == meta.global_indexes[:3]
    assert consumed(client) == 3


def test_the_other_process_wins_while_this_one_stands_before_its_commit(
    client: TransferQueueClient, nursery: Nursery
) -> None:
    meta = put_rows(client, 8)
    slow = nursery.start(stop_elsewhere, client.session, "write_gate.entered", deeds.fetch, "p", 3)
    assert slow.receive() == "paused"
    # It holds the write lock: this fetch stands behind it with a snapshot taken before, loses, and chooses again.
    fast = Call(deeds.fetch, client, "p", 3)
    slow.pipe.send("go on")
    both = [slow.receive(), fast.result()]
    assert slow.wait() == 0
    assert sorted(both) == [meta.global_indexes[:3], meta.global_indexes[3:6]]
    assert consumed(client) == 6


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_sampler_that_raises_changes_nothing(client: TransferQueueClient, error: type[BaseException]) -> None:
    meta = put_rows(client, 4)

    def sample(ready: list[int], size: int) -> tuple[list[int], list[int]]:
        raise error("mine")

    version = client._store.task_snapshot("p", "t", ["x"]).task_version
    with deeds.sampler(client, sample), pytest.raises(error, match="mine"):
        client.get_meta("x", 2, "p", task_name="t")
    assert consumed(client) == 0
    assert client._store.task_snapshot("p", "t", ["x"]).task_version == version
    assert client.get_meta("x", 4, "p", task_name="t").global_indexes == meta.global_indexes


def test_a_sampler_that_chooses_what_it_was_not_offered_changes_nothing(client: TransferQueueClient) -> None:
    meta = put_rows(client, 4)
    stranger = max(meta.global_indexes) + 1000
    for choice in ([stranger], [meta.global_indexes[0]] * 2):

        def sample(ready: list[int], size: int, choice: list[int] = choice) -> tuple[list[int], list[int]]:
            return choice, choice

        with deeds.sampler(client, sample), pytest.raises(ValueError, match="sampler chose"):
            client.get_meta("x", len(choice), "p", task_name="t")
        assert consumed(client) == 0


def test_eight_threads_take_every_row_once(client: TransferQueueClient) -> None:
    meta = put_rows(client, 160)
    barrier = threading.Barrier(8)

    def work(number: int) -> list[int]:
        barrier.wait()
        return take_all(client, 1 + number % 3)

    taken = [index for call in [Call(work, number) for number in range(8)] for index in call.result()]
    assert sorted(taken) == meta.global_indexes, Counter(taken).most_common(3)
    assert client.check_consumption_status("t", "p")


def test_four_processes_take_every_row_once(client: TransferQueueClient, nursery: Nursery) -> None:
    meta = put_rows(client, 200)
    children = [nursery.start(take_in_process, client.session, batch) for batch in (1, 2, 3, 1)]
    for child in children:
        assert child.receive() == "ready"
    for child in children:
        child.pipe.send("go")
    taken = [index for child in children for index in child.receive()]
    assert [child.wait() for child in children] == [0] * 4
    assert sorted(taken) == meta.global_indexes, Counter(taken).most_common(3)


def test_rows_put_and_cleared_while_they_are_taken(client: TransferQueueClient) -> None:
    """Consumers get rows once, whole, while a producer adds some and removes what was taken."""
    done = threading.Event()
    seen: list[int] = []
    guard = threading.Lock()

    def consume() -> None:
        while True:
            last = done.is_set()
            found = client.get_meta("x", 4, "s", task_name="t", polling_mode=True, partial=True)
            if not found.size:
                if last:
                    return
                continue
            values = client.get_data(found)["x"].tolist()
            with guard:
                seen.extend(values)
            client.clear_samples(found)

    consumers = [Call(consume) for _ in range(3)]
    for start in range(0, 240, 8):
        client.put(TensorDict({"x": torch.arange(start, start + 8)}, [8]), partition_id="s")
    done.set()
    for call in consumers:
        call.result()
    assert sorted(seen) == list(range(240)), Counter(seen).most_common(3)
