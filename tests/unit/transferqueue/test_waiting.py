"""Blocking waits: woken by commits, by deadlines, and by what a dead producer committed without waking anybody."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from tests.unit.transferqueue.fake_store import FakeStore
from transferqueue.errors import TransferTimeoutError
from transferqueue.waiting import blocking, deadline, is_over, run_steps, wait_until


def too_late() -> TransferTimeoutError:
    return TransferTimeoutError("too late")


def first_item(store: Any, partition: str = "p", timeout_s: float | None = None) -> int:
    def look() -> int | None:
        return next(iter(store.items.get(partition, ())), None)

    return run_steps(store, wait_until(store, partition, deadline(timeout_s), look, too_late))


def in_a_moment(action: Any) -> threading.Thread:
    thread = threading.Timer(0.2, action)
    thread.start()
    return thread


@pytest.mark.timeout(30)
def test_what_is_there_is_returned_without_waiting() -> None:
    store = FakeStore()
    store.put("p", 7)
    assert first_item(store, timeout_s=0) == 7
    assert store.waits == 0


@pytest.mark.timeout(30)
def test_a_commit_wakes() -> None:
    store = FakeStore()
    store.put("p", 0)
    store.items.clear()
    in_a_moment(lambda: store.put("p", 7))
    assert first_item(store) == 7


@pytest.mark.timeout(30)
def test_a_partition_may_come_later() -> None:
    store = FakeStore()
    in_a_moment(lambda: store.put("new", 7))
    assert first_item(store, "new") == 7


@pytest.mark.timeout(30)
@pytest.mark.parametrize("known", [True, False])
def test_a_commit_without_a_wake_is_noticed(known: bool) -> None:
    store = FakeStore()
    if known:
        store.put("p", 0)
        store.items.clear()
    in_a_moment(lambda: store.put("p", 7, wake=False))
    assert first_item(store, timeout_s=20) == 7


@pytest.mark.timeout(30)
def test_the_deadline_ends_a_wait() -> None:
    store = FakeStore()
    started_s = time.monotonic()
    with pytest.raises(TransferTimeoutError):
        first_item(store, timeout_s=0.3)
    assert time.monotonic() - started_s >= 0.3


def test_one_look_is_taken_after_the_deadline() -> None:
    store = FakeStore()
    steps = wait_until(
        store,
        "p",
        deadline(0.05),
        lambda: next(iter(store.items.get("p", ())), None),
        too_late,  # type: ignore[arg-type]
    )
    next(steps)
    store.put("p", 7)
    time.sleep(0.1)  # whoever drives the steps was kept from running
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert end.value.value == 7


@pytest.mark.parametrize("timeout", [-1, float("nan")])
def test_a_deadline_is_not_negative(timeout: float) -> None:
    with pytest.raises(ValueError, match="timeout"):
        deadline(timeout)


def test_no_deadline_is_never_over() -> None:
    assert deadline(None) is None
    assert not is_over(None)
    assert is_over(deadline(0))
    assert not is_over(deadline(float("inf")))


def test_errors_of_a_look_reach_the_caller() -> None:
    def look() -> int:
        raise KeyError("gone")

    with pytest.raises(KeyError, match="gone"):
        run_steps(FakeStore(), wait_until(FakeStore(), None, None, look, too_late))  # type: ignore[arg-type]


def test_a_blocking_method_keeps_its_steps_and_its_name() -> None:
    class Client:
        _store = FakeStore()

        @blocking
        def answer(self, number: int) -> Any:
            """The answer."""
            return number
            yield

    assert Client().answer(42) == 42
    assert Client.answer.__name__ == "answer"
    assert Client.answer.__doc__ == "The answer."
    assert hasattr(Client.answer, "__steps__")
