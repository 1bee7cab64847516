"""Processes that stand still (SIGSTOP) at a named point, alive as the locks say, until they are continued or killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict

import transferqueue as tq
from tests.crash.victims import Arm
from tests.crash.world import MODES, World
from tests.support.nursery import Child
from tests.support.sessions import wait_for
from tests.support.versioned_rows import rows, versions_of
from transferqueue import BatchMeta, TransferQueueClient, _native

SHORT_S, LONG_S = 0.0, 30.0
EIGHT = list(range(8))
durations = pytest.mark.parametrize(
    "seconds", [SHORT_S, pytest.param(LONG_S, marks=pytest.mark.soak)], ids=["short", "30 s"]
)


def is_stopped(pid: int) -> bool:
    if not os.path.exists(f"/proc/{pid}/stat"):
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def freeze_at(pipe: Connection, session: str, point: str, deed: Callable[..., None], *arguments: Any) -> None:
    """Joins and does the deed, in which it stops itself at ``name[:passes before]``; says "done" or what was raised."""
    client = tq.init(session=session).client
    client.get_partition_list()
    name, _, after = point.partition(":")
    try:
        deed(client, lambda: _native.arm_pause(name, "freeze", after=int(after or 0)), *arguments)
    except tq.TransferQueueError as error:
        pipe.send(str(error))
    else:
        pipe.send("done")
    tq.close()


def freeze_joining(pipe: Connection, session: str, point: str) -> None:
    name, _, after = point.partition(":")
    _native.arm_pause(name, "freeze", after=int(after or 0))
    tq.init(session=session)
    pipe.send("done")
    tq.close()


@contextmanager
def frozen(world: World, point: str, deed: Callable[..., None], *arguments: Any) -> Iterator[Child]:
    """Stopped at the point inside the block, continued at its end (unless it was killed), and then it gets through."""
    child = world.nursery.start(freeze_at, world.session.name, point, deed, *arguments)
    with held(child):
        yield child


@contextmanager
def held(child: Child) -> Iterator[None]:
    wait_for(lambda: is_stopped(child.pid) or child.pipe.poll(), what="a stop")
    assert is_stopped(child.pid), f"got through: {child.receive()}"
    killed = False
    try:
        yield
        killed = not is_stopped(child.pid)
    finally:
        child.kill(signal.SIGCONT)
    if not killed:
        assert child.receive() == "done"
        assert child.wait() == 0


def is_named(error: pytest.ExceptionInfo[tq.TransferTimeoutError], pid: int) -> None:
    """As the holder of the lock, who is stopped."""
    assert f"process {pid} (" in str(error.value), str(error.value)
    assert "stopped" in str(error.value)
    assert error.value.holder_pid == pid


def meta_of(world: World) -> BatchMeta:
    return world.meta_of(EIGHT)


# -- what goes on meanwhile --------------------------------------------------------------------------------------------
def read_everything(world: World) -> None:
    """Whatever looks at rows and at the session, here and in a process that joins now."""
    client = world.client
    meta = world.meta_of(range(8))
    expected = [(number, world.plain[number]) for number in range(8)]
    for mode in MODES:
        assert versions_of(client.get_data(meta, mode=mode)) == expected
    assert client.wait("plain", fields=["x"], count=1, timeout=0).size
    assert len(client.kv_list("keyed")["keyed"]) == len(world.keyed)
    assert client.stats().rows["total"] >= 8
    client.get_consumption_status("t", "plain")


def read_as_joiner(_: Connection, session: str, meta: BatchMeta, expected: list[tuple[int, int]]) -> None:
    """In a process of its own: it joins, reads and ends without a word to the others."""
    client = tq.attach(session).client
    assert versions_of(client.get_data(meta)) == expected


def join_and_read(world: World) -> None:
    expected = [(number, world.plain[number]) for number in range(8)]
    assert world.nursery.run(read_as_joiner, world.session.name, world.meta_of(range(8)), expected) == 0


def write_everything(world: World) -> None:
    """Every kind of write, of rows of its own."""
    client = world.client
    numbers = list(range(900, 908))
    meta = BatchMeta.concat([client.put(rows([number], 1), partition_id="others") for number in numbers])
    client.coalesce(meta)
    client.put(rows(numbers, 2), metadata=meta)
    claimed = client.claim("t", "others", fields="x", batch_size=4, lease_s=60)
    client.ack(claimed)
    assert client.get_meta("x", 4, "others", task_name="t", timeout=5).size == 4
    client.kv_batch_put(["a", "b"], "more", TensorDict({"x": torch.zeros(2, 3)}, [2]))
    assert versions_of(client.get_data(meta)) == [(number, 2) for number in numbers]
    client.clear_samples(meta)
    client.clear_partition("more")
    client.clear_partition("others")


def for_seconds(seconds: float, *calls: Callable[[World], None]) -> Callable[[World], None]:
    """Once at least."""

    def run(world: World) -> None:
        until_s = time.monotonic() + seconds
        while True:
            for call in calls:
                call(world)
            if time.monotonic() >= until_s:
                return

    return run


# -- deeds beside those of `victims` ----------------------------------------------------------------------------------
def hold_task_lock(client: TransferQueueClient, arm: Arm) -> None:
    arm()
    with client._store.lock_task("plain", "t", 5.0):
        pass


def wait_in_vain(client: TransferQueueClient, arm: Arm, pid_file: str) -> None:
    """Says by a file that it is about to sleep; stops at no point: the test stops it."""
    Path(pid_file).write_text("waiting")
    try:
        client.wait("nothing", fields=["x"], count=1, timeout=0.7)
    except tq.TransferTimeoutError:
        return


def claim_and_ack(client: TransferQueueClient, arm: Arm) -> None:
    arm()
    claimed = client.claim("stopped", "plain", fields="x", batch_size=2, lease_s=3600)
    client.ack(claimed)
