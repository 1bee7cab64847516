"""A process that waits for the next batch of a stream, and its workers, can be ended from outside."""

from __future__ import annotations

import os
import signal
import time
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


def iterate(pipe: Connection, workers: int) -> None:
    with tq.init(**{"storage.size": SIZE}):
        dataset = tq.StreamingDataset("p", fields="x", batch_size=4, task_name="t")
        items = iter(tq.StreamingDataLoader(dataset, num_workers=workers))
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


def test_workers_of_a_killed_process_end() -> None:
    child = Forked(lambda pipe: iterate(pipe, 2))
    workers = child.hear()
    assert len(workers) == 2
    child.kill()
    wait_for(lambda: not any(is_running(pid) for pid in workers), 20.0, "the end of the workers")
