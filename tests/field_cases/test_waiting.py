"""Field case 94: who waits costs next to nothing and is there when the rows are."""

from __future__ import annotations

import threading
import time
from multiprocessing.connection import Connection

import pytest
import torch
from tensordict import TensorDict

import transferqueue as tq
from tests.support.nursery import Nursery
from tests.support.quiet import without_service
from tests.support.sessions import embedded

WAITERS = 64


def wait_together(pipe: Connection, session: str, idle_s: float) -> None:
    """64 waiters: the processor time that they take while nothing comes, and when each was back (CLOCK_MONOTONIC)."""
    client = tq.attach(session).client
    back: list[float] = []

    def wait() -> None:
        client.wait("p", fields="x", count=1, timeout=120)
        back.append(time.monotonic())

    threads = [threading.Thread(target=wait) for _ in range(WAITERS)]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    began, used_s = time.monotonic(), time.process_time()
    time.sleep(idle_s)
    pipe.send((time.process_time() - used_s) / (time.monotonic() - began))
    for thread in threads:
        thread.join()
    pipe.send(back)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("idle_s", [1.0, pytest.param(10.0, marks=[pytest.mark.soak, pytest.mark.timing])])
def test_field_case_94_64_idle_waiters(idle_s: float, request: pytest.FixtureRequest) -> None:
    with embedded(**{"storage.size": "16MiB"}) as session, without_service(session), Nursery() as nursery:
        child = nursery.start(wait_together, session.name, idle_s)
        share = child.receive()
        session.client.put(TensorDict({"x": torch.zeros(1)}, [1]), partition_id="p")
        put = time.monotonic()
        late_s = sorted(each - put for each in child.receive())
        assert child.wait() == 0
    assert len(late_s) == WAITERS
    assert share < 0.1, "of a core, by all of them: one that looks every millisecond takes more"
    if request.node.get_closest_marker("timing"):
        assert late_s[0] < 0.01
