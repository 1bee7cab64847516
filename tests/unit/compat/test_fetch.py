"""A fetch that waits for rows, and samplers that raise: both with a deadline and an error that says what it was."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from tests.support.sessions import embedded
from transferqueue.compat import transfer_queue as tq
from transferqueue.compat.environment import fetch_timeout_s

ROWS = TensorDict({"x": torch.arange(2)}, [2])


class Odd(tq.BaseSampler):
    """Refuses rows that are not marked, and odd sizes. Like user samplers, it defines only `sample`."""

    def sample(
        self, ready_indexes: list[int], batch_size: int, partition: Any = None, **kwargs: Any
    ) -> tuple[list[int], list[int]]:
        if batch_size % 2:
            raise ValueError(f"batch_size {batch_size} must be even")
        tags = partition.get_custom_meta(ready_indexes)
        chosen = [index for index in ready_indexes if tags[index].get("take")][:batch_size]
        return chosen, chosen


@pytest.fixture(scope="module")
def waiting() -> Iterator[None]:
    with embedded(**{"controller.sampler": Odd}):
        yield
        tq.close()


@pytest.fixture
def client(waiting: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[tq.TransferQueueClient]:
    monkeypatch.setenv("TQ_CONTROLLER_GET_METADATA_TIMEOUT", "0.2")
    monkeypatch.setenv("TQ_CONTROLLER_GET_METADATA_CHECK_INTERVAL", "0.1")
    tq.kv_list()
    found = tq.get_client()
    yield found
    for partition in found.get_partition_list():
        found.clear_partition(partition)


def test_too_few_rows_are_an_error_after_the_deadline(client: tq.TransferQueueClient) -> None:
    client.put(ROWS, partition_id="p")
    with pytest.raises(
        RuntimeError, match="TimeoutError: Timeout while waiting for sufficient data for task t"
    ) as caught:
        client.get_meta(["x"], 4, "p", task_name="t")
    assert "there are 2" in str(caught.value)
    with pytest.raises(RuntimeError, match="no partition 'q'"):
        client.get_meta(["x"], 4, "q", task_name="t")


def test_rows_that_come_end_the_wait(client: tq.TransferQueueClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TQ_CONTROLLER_GET_METADATA_TIMEOUT", "60")

    def put_later() -> None:
        time.sleep(0.1)
        tq.kv_batch_put(["a", "b"], "p", ROWS, [{"take": True}, {"take": True}])

    thread = threading.Thread(target=put_later)
    thread.start()
    meta = client.get_meta(["x"], 2, "p", task_name="t")
    thread.join()
    assert meta.size == 2
    assert meta.custom_meta == [{"take": True}, {"take": True}]


def test_a_sampler_that_raises_consumes_nothing(client: tq.TransferQueueClient) -> None:
    tq.kv_batch_put(["a", "b", "c"], "p", TensorDict({"x": torch.arange(3)}, [3]), [{"take": 1}, {}, {"take": 1}])
    with pytest.raises(RuntimeError, match="ValueError: batch_size 3 must be even"):
        client.get_meta(["x"], 3, "p", task_name="t")
    fetched = client.get_meta(["x"], 2, "p", task_name="t")
    assert client.kv_retrieve_keys(fetched.global_indexes, "p") == ["a", "c"]


def test_the_deadline_is_the_first_look_after_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    timeout, interval = "TQ_CONTROLLER_GET_METADATA_TIMEOUT", "TQ_CONTROLLER_GET_METADATA_CHECK_INTERVAL"
    assert fetch_timeout_s() == 5.0
    for given, expected in ((("12", ""), 15.0), (("5", "5"), 10.0), (("3", "0"), 3.0), (("0", "0.5"), 0.5)):
        monkeypatch.setenv(timeout, given[0])
        monkeypatch.setenv(interval, given[1])
        assert fetch_timeout_s() == expected
    monkeypatch.setenv(timeout, "soon")
    with pytest.raises(ValueError, match=timeout):
        fetch_timeout_s()
