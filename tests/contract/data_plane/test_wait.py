"""Waiting for rows."""

from __future__ import annotations

import signal
import threading
from typing import Any

import pytest
import torch
from tensordict import TensorDict

import transferqueue as tq
from transferqueue import TransferQueueClient

pytestmark = pytest.mark.timeout(120)


def later(action: Any) -> threading.Timer:
    timer = threading.Timer(0.2, action)
    timer.start()
    return timer


def one(value: int = 0, **fields: int) -> TensorDict:
    return TensorDict({name: torch.tensor([number]) for name, number in (fields or {"x": value}).items()}, [1])


def test_for_keys_that_do_not_exist_yet(client: TransferQueueClient) -> None:
    timer = later(lambda: client.kv_batch_put(["b", "a"], "new", TensorDict({"x": torch.arange(2)}, [2])))
    meta = client.wait("new", fields="x", keys=["a", "b"], timeout=60)
    assert client.get_data(meta)["x"].tolist() == [1, 0]
    assert meta.is_ready
    timer.join()


def test_for_fields_of_rows(client: TransferQueueClient) -> None:
    meta = client.put(TensorDict({"x": torch.arange(3)}, [3]), partition_id="p")
    timer = later(lambda: client.put(TensorDict({"y": torch.arange(3)}, [3]), metadata=meta.copy()))
    found = client.wait("p", fields=["x", "y"], metadata=meta, timeout=60)
    assert found.field_names == ["x", "y"]
    assert found.global_indexes == meta.global_indexes
    timer.join()


def test_for_a_number_of_rows(client: TransferQueueClient) -> None:
    client.put(one(), partition_id="p")
    timer = later(lambda: client.put(one(), partition_id="p"))
    assert client.wait("p", fields="x", count=2, timeout=60).size == 2
    timer.join()
    assert client.wait("p", fields="x", count=1, timeout=0).size == 1
    assert client.wait("p", fields="x", count=0, timeout=0).size == 0


def test_for_rows_that_a_task_has_not_consumed(client: TransferQueueClient) -> None:
    first = client.put(TensorDict({"x": torch.arange(2)}, [2]), partition_id="p")
    assert client.wait("p", fields="x", count=2, task_name="t", timeout=0).size == 2
    assert client.get_meta("x", 2, "p", task_name="t").global_indexes == first.global_indexes
    with pytest.raises(tq.TransferTimeoutError, match="0 of 1"):
        client.wait("p", fields="x", count=1, task_name="t", timeout=0.1)
    assert client.wait("p", fields="x", count=2, task_name="other", timeout=0).size == 2


def test_a_timeout_says_what_is_missing(client: TransferQueueClient) -> None:
    client.kv_put("a", "p", {"x": torch.tensor(1)})
    with pytest.raises(tq.TransferTimeoutError, match="'b'") as keys:
        client.wait("p", fields="x", keys=["a", "b"], timeout=0.1)
    assert keys.value.missing == ["b"]
    with pytest.raises(tq.TransferTimeoutError, match="'y'") as fields:
        client.wait("p", fields=["x", "y"], keys=["a"], timeout=0)
    assert list(fields.value.missing) == ["y"]
    with pytest.raises(tq.TransferTimeoutError, match="1 of 3") as count:
        client.wait("p", fields="x", count=3, timeout=0)
    assert count.value.missing == 2
    assert isinstance(count.value, TimeoutError)
    assert client.get_partition_list() == ["p"]


def test_a_timeout_says_what_does_not_exist(client: TransferQueueClient) -> None:
    meta = client.put(one(), partition_id="p")
    client.kv_put("a", "kv", {"x": torch.tensor(1)})
    no_partition = r"there is no partition 'q' in session .*; there are: 'p', 'kv'"
    no_field = r"partition '{}' has no field 'y', it has 'x'"
    calls: list[tuple[Any, str]] = [
        (lambda: client.wait("q", fields="x", count=1, timeout=0), f"0 of 1 are there; {no_partition}"),
        (lambda: client.wait("q", fields="x", keys="a", timeout=0), f"'a' do not exist; {no_partition}"),
        (lambda: client.wait("p", fields=["x", "y"], count=1, timeout=0), no_field.format("p")),
        (lambda: client.wait("p", fields="y", metadata=meta, timeout=0), no_field.format("p")),
        (lambda: client.get_meta("x", 1, "q", task_name="t", timeout=0), f"there are 0; {no_partition}"),
        (lambda: client.get_meta("y", 1, "p", task_name="t", timeout=0), f"there are 0; {no_field.format('p')}"),
        (lambda: client.get_data(meta, fields="y", timeout=0), no_field.format("p")),
        (lambda: client.kv_batch_get("a", "q", timeout=0), no_partition),
        (lambda: client.kv_batch_get("a", "kv", "y", timeout=0), no_field.format("kv")),
    ]
    for call, text in calls:
        with pytest.raises(tq.TransferTimeoutError, match=text):
            call()
    for call in (lambda: client.get_data(meta, fields="y"), lambda: client.kv_batch_get("a", "kv", "y")):
        with pytest.raises(tq.FieldNotReadyError, match="has no field 'y', it has 'x'"):
            call()


def test_a_field_that_exists_is_not_called_unknown(client: TransferQueueClient) -> None:
    meta = client.put(one(), partition_id="p")
    client.put(one(y=1), partition_id="p")
    with pytest.raises(tq.FieldNotReadyError) as now:
        client.get_data(meta, fields="y")
    with pytest.raises(tq.TransferTimeoutError) as late:
        client.wait("p", fields="y", metadata=meta, timeout=0)
    assert "has no field" not in f"{now.value} {late.value}"


def test_waiting_for_a_row_that_is_cleared_ends(client: TransferQueueClient) -> None:
    meta = client.put(one(), partition_id="p")
    timer = later(lambda: client.clear_samples(meta))
    with pytest.raises(tq.StaleMetadataError):
        client.wait("p", fields="y", metadata=meta, timeout=60)
    timer.join()


def test_a_partition_may_be_cleared_and_filled_again_meanwhile(client: TransferQueueClient) -> None:
    client.put(one(), partition_id="p")

    def again() -> None:
        client.clear_partition("p")
        client.put(TensorDict({"x": torch.arange(3)}, [3]), partition_id="p")

    timer = later(again)
    assert client.wait("p", fields="x", count=3, timeout=60).size == 3
    timer.join()


@pytest.mark.parametrize(
    "arguments",
    [{}, {"keys": ["a"], "count": 1}, {"keys": ["a"], "task_name": "t"}, {"keys": []}, {"count": 1, "timeout": -1}],
)
def test_exactly_one_condition(client: TransferQueueClient, arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        client.wait("p", fields="x", **arguments)


def test_a_wait_can_be_interrupted(client: TransferQueueClient) -> None:
    timer = later(lambda: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        client.wait("p", fields="x", count=1, timeout=60)
    timer.join()
    assert client.put(one(), partition_id="p").is_ready
