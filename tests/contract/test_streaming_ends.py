"""A process that waits for the next batch of a stream, and its workers, can be ended from outside."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

import transferqueue as tq
from tests.support.sessions import SIZE, Forked, wait_for

pytestmark = pytest.mark.timeout(60)


def children() -> set[int]:
    return {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_for_another_parent(_: int) -> None:
    """In a worker: until whoever started it is dead."""
    started_by = os.getppid()
    while os.getppid() == started_by:
        time.sleep(0.01)


def iterate(pipe: Connection, workers: int, worker_init_fn: Callable[[int], None] | None = None) -> None:
    with tq.init(**{"storage.size": SIZE}):
        dataset = tq.StreamingDataset("p", fields="x", batch_size=4, task_name="t")
        items = iter(tq.StreamingDataLoader(dataset, num_workers=workers, worker_init_fn=worker_init_fn))
        pipe.send(children())
        try:
            next(items)
        except KeyboardInterrupt:
            pipe.send("interrupted")


@pytest.mark.parametrize("workers", [0, 1])
def test_ctrl_c_ends_a_wait(workers: int) -> None:
    child = Forked(lambda pipe: iterate(pipe, workers))
    child.hear()
    time.sleep(0.2)
    os.kill(child.pid, signal.SIGINT)
    assert child.hear(10.0) == "interrupted"
    assert child.join() == 0


@pytest.mark.parametrize("worker_init_fn", [None, wait_for_another_parent], ids=["at work", "not begun"])
def test_workers_of_a_killed_process_end(worker_init_fn: Callable[[int], None] | None) -> None:
    child = Forked(lambda pipe: iterate(pipe, 2, worker_init_fn))
    workers = child.hear()
    assert len(workers) == 2
    child.kill()
    wait_for(lambda: not any(is_running(pid) for pid in workers), 30.0, "the end of the workers")
