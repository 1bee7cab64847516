"""Processes that are dead or alive in unusual ways, with a view, a reservation and a claim."""

from __future__ import annotations

import os
import signal
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

import torch

import transferqueue as tq
from tests.support.versioned_rows import WIDTH, versions_of
from transferqueue import BatchMeta, TransferQueueClient

SLEEP = [sys.executable, "-S", "-c", "import sys; sys.stdin.read()"]


def join_and_hold(session: str, meta: BatchMeta) -> tuple[TransferQueueClient, object]:
    """A view of the rows, a reservation, and a claim of two rows for task "t"."""
    client = tq.init(session=session).client
    held = client.get_data(meta)
    allocation = client.alloc({"x": ((WIDTH,), torch.int64)}, partition_id="plain", batch_size=8)
    assert client.claim("t", "plain", fields="x", batch_size=2, lease_s=3600)
    return client, (held, allocation)


def hold_and_execute(pipe: Connection, session: str, meta: BatchMeta) -> None:
    """Becomes another program, under the same pid, which ends when the pipe closes."""
    _, held = join_and_hold(session, meta)
    pipe.send("holding")
    pipe.recv()
    os.dup2(pipe.fileno(), 0)
    os.execv(SLEEP[0], SLEEP)
    del held


def hold_and_become_a_zombie(pipe: Connection, session: str, meta: BatchMeta) -> None:
    """Its child holds, and is killed; this process, which is not a client, waits for it only when told to."""
    child = os.fork()
    if child == 0:
        _, held = join_and_hold(session, meta)
        pipe.send("holding")
        signal.pause()
        del held
    pipe.recv()
    os.kill(child, signal.SIGKILL)
    while Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.001)
    pipe.send(child)
    pipe.recv()
    os.waitpid(child, 0)
    pipe.send("waited for")


def hold_and_fork(pipe: Connection, session: str, meta: BatchMeta, executes: bool) -> None:
    """Its child goes on when it is killed: as itself, with the view (it says what it shows), or as another program."""
    _, held = join_and_hold(session, meta)
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        if executes:
            os.dup2(pipe.fileno(), 0)
            os.write(theirs, b"x")
            os.execv(SLEEP[0], SLEEP)
        os.write(theirs, b"x")
        view = held[0]  # type: ignore[index]
        pipe.recv()
        pipe.send(versions_of(view))
        os._exit(0)
    os.close(theirs)
    os.read(ours, 1)
    if executes:
        os.read(ours, 1)  # ends when the other program begins: the pipe is close-on-exec
    pipe.send(child)
    signal.pause()
