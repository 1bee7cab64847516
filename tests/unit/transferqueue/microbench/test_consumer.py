"""The second process."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from transferqueue.microbench.consumer import Consumer

pytestmark = pytest.mark.timeout(120)


class Answering:
    def __init__(self, start: int) -> None:
        self._number = start
        if start < 0:
            raise ValueError("negative")

    def add(self, number: int) -> tuple[int, int]:
        self._number += number
        return self._number, os.getpid()

    def fail(self) -> None:
        raise KeyError("missing")

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def _gone(pid: int) -> bool:
    until_s = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists():
        if time.monotonic() > until_s:
            return False
        time.sleep(0.01)
    return True


def test_calls_are_answered_in_another_process_that_ends_on_close() -> None:
    consumer = Consumer(Answering, 1)
    assert consumer.call("add", 2) == (3, consumer.pid)
    assert consumer.pid != os.getpid()
    consumer.start("add", 4)
    assert consumer.finish() == (7, consumer.pid)
    consumer.close()
    consumer.close()
    assert _gone(consumer.pid)


def test_errors_of_the_other_side_are_raised_here_with_their_trace() -> None:
    with pytest.raises(RuntimeError, match="negative"):
        Consumer(Answering, -1)
    consumer = Consumer(Answering, 0)
    with pytest.raises(RuntimeError, match="KeyError: 'missing'"):
        consumer.call("fail")
    assert consumer.call("add", 1)[0] == 1
    with pytest.raises(RuntimeError, match=f"process {consumer.pid}, ended without an answer"):
        consumer.call("die")
    consumer.close()
