"""What the controller is told of a rank that dies between calls, with ranks in this process."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.contract.worker_group.workers import Mortal
from tests.support.nursery import Nursery
from transferqueue.controller import LocalWorkerGroup, WorkerDiedError, WorkerGroupDeadError
from transferqueue.controller.aliveness import AlivenessCheck, wait_until_alive
from transferqueue.controller.death_alarm import ALARM_SIGNAL
from transferqueue.controller.rank_facts import RankFacts, RankState
from transferqueue.controller.rank_set import RankSet
from transferqueue.errors import TransferTimeoutError

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def group() -> Iterator[LocalWorkerGroup]:
    with LocalWorkerGroup(Mortal, 2) as group:
        yield group


def test_a_death_is_raised_in_a_sleeping_controller(group: LocalWorkerGroup) -> None:
    group.start_worker_aliveness_check(0.02)
    group.leave_later(1, 0.05)
    with pytest.raises(WorkerDiedError, match=r"rank 1 .* died; the group is dead") as caught:
        time.sleep(40.0)
    assert (caught.value.rank, caught.value.method) == (1, None)
    with pytest.raises(WorkerGroupDeadError, match="rank 1"):
        group.here()


def test_a_death_is_raised_in_a_controller_that_waits_for_a_lock(group: LocalWorkerGroup) -> None:
    lock = threading.Lock()
    lock.acquire()
    group.start_worker_aliveness_check(0.02)
    group.leave_later(0, 0.05)
    with pytest.raises(WorkerDiedError, match="rank 0"):
        lock.acquire(timeout=40.0)


def test_a_death_that_a_call_raised_is_not_raised_again(group: LocalWorkerGroup) -> None:
    group.start_worker_aliveness_check(0.02)
    with pytest.raises(WorkerDiedError, match="during leave"):
        group.leave(1)
    time.sleep(0.2)


def test_another_thread_is_told_at_its_next_call(group: LocalWorkerGroup) -> None:
    told: list[BaseException] = []

    def control() -> None:
        group.start_worker_aliveness_check(0.02)
        group.leave_later(1, 0.0)
        while not group.is_dead:
            time.sleep(0.01)
        try:
            group.here()
        except WorkerGroupDeadError as error:
            told.append(error)

    thread = threading.Thread(target=control)
    thread.start()
    thread.join()
    assert len(told) == 1
    time.sleep(0.1)  # nothing is raised here


def test_a_handler_of_the_program_is_still_called(group: LocalWorkerGroup) -> None:
    seen: list[int] = []
    before = signal.signal(ALARM_SIGNAL, lambda number, frame: seen.append(number))
    try:
        group.start_worker_aliveness_check(0.02)
        signal.raise_signal(ALARM_SIGNAL)
        assert seen == [ALARM_SIGNAL]
    finally:
        signal.signal(ALARM_SIGNAL, before)


def test_a_check_does_not_keep_a_group_alive() -> None:
    group = LocalWorkerGroup(Mortal, 1)
    group.start_worker_aliveness_check(0.02)
    del group
    deadline = time.monotonic() + 20.0
    while any(thread.name == "worker-aliveness" for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def be_aborted(pipe: Any) -> None:
    group = LocalWorkerGroup(Mortal, 2)
    group.start_worker_aliveness_check(0.02, on_death="abort")
    group.leave_later(1, 0.0)
    time.sleep(40.0)


def test_abort_ends_the_controller_with_sigabrt() -> None:
    with Nursery() as nursery:
        assert nursery.run(be_aborted) == -signal.SIGABRT


class Scripted(RankSet):
    """Two ranks whose states are given by the query, the last ones for good."""

    def __init__(self, *script: tuple[str, str]) -> None:
        super().__init__([RankFacts(0, "here"), RankFacts(1, "there")])
        self.script = list(script)
        self.queries = 0

    def states(self) -> list[RankState]:
        self.queries += 1
        states = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        return [RankState(state, "it fell over" if state == "dead" else "") for state in states]  # type: ignore[arg-type]

    def reports(self, positions: Sequence[int], role: str | None, timeout_s: float) -> dict[int, Any]:
        return {}

    def stop(self) -> None:
        self.is_stopped = True


def test_all_ranks_are_waited_for_first() -> None:
    ranks = Scripted(("starting", "starting"), ("alive", "starting"), ("alive", "alive"))
    wait_until_alive(ranks, 20.0)
    assert ranks.queries == 3
    with pytest.raises(
        TransferTimeoutError, match=r"1 of 2 ranks do not live after 0 s: rank 1 \(node there"
    ) as caught:
        wait_until_alive(Scripted(("alive", "starting")), 0.0)
    assert caught.value.missing == [1]
    with pytest.raises(WorkerGroupDeadError, match=r"rank 1 .* died; the group is dead\. Cause: it fell over"):
        wait_until_alive(Scripted(("starting", "dead")), 20.0)


def test_one_query_per_period() -> None:
    ranks = Scripted(("alive", "alive"))
    began = time.monotonic()
    check = AlivenessCheck(ranks, 0.05, "raise")
    while ranks.queries < 4:
        time.sleep(0.01)
    check.stop()
    assert ranks.queries <= (time.monotonic() - began) / 0.05, "one for both ranks in each period"
    assert not check.is_running
