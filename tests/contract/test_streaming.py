"""A stream of rows: it starts before the first put, gives each row once, and ends when the promised ones are."""

from __future__ import annotations

import os
import pickle
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict

import transferqueue as tq
from tests.support.sessions import embedded, wait_for

pytestmark = pytest.mark.timeout(90)


@pytest.fixture(scope="module")
def session() -> Iterator[tq.Session]:
    with embedded(**{"controller.sampler": tq.GRPOGroupNSampler(2)}) as found:
        yield found


@pytest.fixture
def client(session: tq.Session) -> Iterator[tq.TransferQueueClient]:
    found = tq.get_client()
    yield found
    for partition in found.get_partition_list():
        found.clear_partition(partition)


def put(client: tq.TransferQueueClient, start: int, stop: int, partition: str = "p") -> tq.BatchMeta:
    rows = [torch.arange(index % 5) for index in range(start, stop)]
    jagged = torch.nested.nested_tensor(rows, layout=torch.jagged)
    return client.put(TensorDict({"x": torch.arange(start, stop), "j": jagged}, [stop - start]), partition_id=partition)


def stream(**options: Any) -> tq.StreamingDataset:
    given: dict[str, Any] = {"fields": ["x", "j"], "batch_size": 4, "task_name": "t", "timeout": 30.0}
    return tq.StreamingDataset("p", **{**given, **options})


def values(items: Any) -> list[int]:
    found = []
    for batch, metadata in items:
        assert batch.batch_size == (metadata.size,)
        assert [len(row) for row in batch["j"].unbind()] == [value % 5 for value in batch["x"].tolist()]
        found += batch["x"].tolist()
    return found


def rows_put_one_by_one(client: tq.TransferQueueClient, total: int) -> threading.Thread:
    def produce() -> None:
        for row in range(total):
            put(client, row, row + 1)
            time.sleep(0.005)

    thread = threading.Thread(target=produce)
    thread.start()
    return thread


def test_an_empty_stream_is_not_a_finished_one(client: tq.TransferQueueClient) -> None:
    """Field case 52."""
    items = iter(stream(micro_batch_size=3, total_rows=18))
    sizes, found = [], []
    producer: threading.Thread | None = None

    def start_late() -> None:
        nonlocal producer
        time.sleep(0.1)
        assert client.get_partition_list() == []
        producer = rows_put_one_by_one(client, 18)

    late = threading.Thread(target=start_late)
    late.start()
    for batch, metadata in items:
        sizes.append(metadata.size)
        found += batch["x"].tolist()
        client.clear_samples(metadata)  # cleared rows count as consumed
    assert sizes == [3, 1, 3, 1, 3, 1, 3, 1, 2]
    assert found == list(range(18))
    late.join()
    assert producer is not None
    producer.join()


def test_a_batch_is_there_as_soon_as_its_rows_are(client: tq.TransferQueueClient) -> None:
    items = iter(stream(batch_size=2))
    put(client, 0, 2)
    assert next(items)[0]["x"].tolist() == [0, 1]
    put(client, 2, 3)
    timer = threading.Timer(0.1, put, (client, 3, 4))
    timer.start()
    assert next(items)[0]["x"].tolist() == [2, 3]
    timer.join()


def test_a_wait_has_a_deadline(client: tq.TransferQueueClient) -> None:
    put(client, 0, 4)
    items = iter(stream(timeout=0.05, total_rows=8))
    assert next(items)[1].size == 4
    put(client, 4, 5)
    with pytest.raises(
        tq.TransferTimeoutError, match=r"there are 1, and it has consumed 4 of the 8 promised"
    ) as caught:
        next(items)
    assert caught.value.missing == 3
    assert values(stream(timeout=0.05, task_name="u", total_rows=4)) == [0, 1, 2, 3]


def test_a_partition_that_is_cleared_under_a_stream_ends_it_with_an_error(client: tq.TransferQueueClient) -> None:
    put(client, 0, 4)
    items = iter(stream(total_rows=8))
    next(items)
    threading.Timer(0.1, client.clear_partition, ("p",)).start()
    with pytest.raises(tq.PartitionNotFoundError, match="cleared before task 't' had consumed the 8 rows"):
        next(items)


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch_size": 0},
        {"micro_batch_size": 0},
        {"total_rows": -1},
        {"fields": []},
        {"task_name": ""},
        {"timeout": -1},
    ],
    ids=str,
)
def test_bad_arguments(session: tq.Session, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        stream(**wrong)


def test_kept_batches_are_replayed_and_a_step_forgets_them(client: tq.TransferQueueClient) -> None:
    put(client, 0, 8)
    dataset = stream(keep_batches=True, total_rows=8, micro_batch_size=2)
    assert values(dataset) == list(range(8))
    assert [metadata.size for _, metadata in dataset.buffer] == [4, 4]
    assert list(dataset) == []
    dataset.reset()
    client.clear_samples(dataset.buffer[0][1])
    assert values(dataset) == list(range(8))
    put(client, 20, 28, partition="q")
    dataset.step("q")
    assert dataset.buffer == []
    assert values(dataset) == list(range(20, 28))


def test_processes_of_a_rank_get_the_same_batches_and_both_end(client: tq.TransferQueueClient) -> None:
    put(client, 0, 12)
    ranks = [iter(stream(dp_rank=rank, total_rows=12)) for rank in (0, 0, 1)]
    first, again, other = (values([next(rank)]) for rank in ranks)
    assert first == again == [0, 1, 2, 3]
    assert other == [4, 5, 6, 7]
    assert values(ranks[0]) == [8, 9, 10, 11]
    assert values(ranks[1]) == [8, 9, 10, 11]  # consumed, but this process of the rank has not seen them
    assert values(ranks[2]) == []


def test_workers_share_the_rows(client: tq.TransferQueueClient) -> None:
    producer = rows_put_one_by_one(client, 18)
    loader = tq.StreamingDataLoader(stream(micro_batch_size=2, total_rows=18), num_workers=2)
    assert sorted(values(loader)) == list(range(18))
    producer.join()


def test_workers_of_a_rank_take_turns(client: tq.TransferQueueClient) -> None:
    put(client, 0, 16)
    loaders = [
        tq.StreamingDataLoader(stream(dp_rank=0, total_rows=16, micro_batch_size=2), num_workers=2) for _ in range(2)
    ]
    first, second = (values(loader) for loader in loaders)
    assert sorted(first) == list(range(16))
    assert first == second


def ten_times(item: Any) -> torch.Tensor:
    batch, _ = item
    tens: torch.Tensor = batch["x"] * 10
    return tens


def test_spawned_workers_attach_by_themselves_and_collate(client: tq.TransferQueueClient) -> None:
    put(client, 0, 8)
    loader = tq.StreamingDataLoader(
        stream(total_rows=8), num_workers=1, collate_fn=ten_times, multiprocessing_context="spawn"
    )
    assert torch.cat(list(loader)).tolist() == [value * 10 for value in range(8)]


def test_an_error_of_a_worker_is_raised_here(client: tq.TransferQueueClient) -> None:
    loader = tq.StreamingDataLoader(stream(timeout=0.05), num_workers=1)
    with pytest.raises(tq.TransferTimeoutError, match="there is no partition 'p'"):
        next(iter(loader))


@pytest.mark.parametrize("persistent", [False, True])
def test_dropping_a_loader_ends_its_waiting_workers(client: tq.TransferQueueClient, persistent: bool) -> None:
    put(client, 0, 4)
    before = children()  # helpers of multiprocessing
    loader = tq.StreamingDataLoader(stream(timeout=None), num_workers=2, persistent_workers=persistent)
    items: Any = iter(loader)
    assert next(items)[0]["x"].tolist() == [0, 1, 2, 3]
    workers = children() - before
    assert len(workers) == 2
    del items, loader
    # torch would wait 5 s for each before it ends them.
    wait_for(lambda: not workers & children(), 3.0, "the end of the workers")


def test_a_dataset_travels_without_what_belongs_to_its_process(client: tq.TransferQueueClient) -> None:
    put(client, 0, 8)
    dataset = stream(total_rows=8)
    assert values([next(iter(dataset))]) == [0, 1, 2, 3]
    assert values(pickle.loads(pickle.dumps(dataset))) == [4, 5, 6, 7]


def children() -> set[int]:
    return {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split() if is_running(pid)}


def is_running(pid: int | str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
