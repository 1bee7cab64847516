"""Processes that take over a session whose processes, or whose service, are dead; some die at it."""

from __future__ import annotations

import contextlib
import io
import os
from multiprocessing.connection import Connection

import torch

import transferqueue as tq
from tests.crash.session_victims import die_at_step
from tests.support.versioned_rows import rows
from transferqueue import _native, cli


def fill(pipe: Connection, name: str, count: int) -> None:
    """Makes the session, with rows under keys, some of them cleared under a view, and a reservation; until killed."""
    client = tq.init(session=name, **{"storage.size": "8MiB"}).client
    client.kv_batch_put([f"k{number}" for number in range(count)], "kept", rows(range(count), 1))
    meta = client.put(rows(range(8), 1), partition_id="cleared")
    held = client.get_data(meta)
    allocation = client.alloc({"x": ((2048,), torch.float32)}, partition_id="a", batch_size=8)
    client.clear_samples(meta)
    pipe.send("filled")
    pipe.recv()
    del held, allocation


def adopt(pipe: Connection, name: str, point: str | None, adopt: bool = True) -> None:
    """Says whether it is the session's new creator; keeps it until killed or told to go."""
    if point is not None:
        found, _, after = point.partition(":")
        _native.arm_pause(found, "kill", after=int(after or 0))
    session = tq.init(session=name, adopt=adopt, **{"storage.size": "8MiB"})
    session.client.get_partition_list()
    if session.creator:
        session.service.tick()
    pipe.send(session.creator)
    pipe.recv()
    tq.close()


def adopt_at_step(pipe: Connection, name: str, step: int) -> None:
    """Dies at its `step`-th look at or change of a name in shared memory, or of a lock."""
    start = die_at_step(step)
    start()
    session = tq.init(session=name, **{"storage.size": "8MiB"})
    session.client.get_partition_list()
    pipe.send("through")
    pipe.recv()


def serve(pipe: Connection, name: str, point: str | None) -> None:
    """`tq serve`; sends the line that it says when it serves, or its error."""
    if point is not None:
        _native.arm_pause(point, "kill")

    class Said(io.StringIO):
        def write(self, text: str) -> int:
            # Not what is logged.
            if text.strip().startswith(("serving ", "tq ")):
                pipe.send(text.strip())
            return len(text)

    with contextlib.redirect_stdout(Said()), contextlib.redirect_stderr(Said()):
        status = cli.main(["serve", "--session", name, "--size", "8MiB"])
    os._exit(status)
