"""What the processes of tests/race/test_closed_descriptors.py do: close every descriptor, ours among them."""

from __future__ import annotations

import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import torch
from tensordict import TensorDict

import transferqueue as tq
from transferqueue import TransferQueueClient

ROWS = 64
WIDTH = 4096
CONTENTS = b"somebody else's file\n" * 1000


def batch(factor: int = 1) -> TensorDict:
    """1 MB."""
    return TensorDict({"x": torch.arange(ROWS * WIDTH).view(ROWS, WIDTH) * factor}, [ROWS])


def close_all(pipe: Connection, folder: str, *, reopen: bool) -> list[int]:
    """Every descriptor but the standard ones and the pipe's, as who becomes a daemon does. With `reopen`, their numbers
    are those of files of the program's own from then on."""
    highest = max(map(int, os.listdir("/proc/self/fd"))) + 1
    for fd in range(3, highest):
        if fd != pipe.fileno():
            os.closerange(fd, fd + 1)
    files = []
    while reopen and (not files or max(files) < highest):
        files.append(os.open(f"{folder}/{len(files)}", os.O_RDWR | os.O_CREAT, 0o600))
        os.write(files[-1], CONTENTS)
    return files


def damage(files: list[int]) -> list[str]:
    """What became of the program's files."""
    found = []
    for number, fd in enumerate(files):
        try:
            if os.pread(fd, 2 * len(CONTENTS), 0) != CONTENTS:
                found.append(f"file {number} was written to")
        except OSError as error:
            found.append(f"file {number}: {error}")
    return found


def outcome(call: Callable[[], Any]) -> str:
    """The name of the error that it raises."""
    try:
        call()
    except Exception as error:
        return type(error).__name__
    return "none"


def calls(client: TransferQueueClient, meta: tq.BatchMeta) -> dict[str, Callable[[], Any]]:
    """Of every kind: reads, writes, metadata, waits, claims, figures."""
    return {
        "get": lambda: client.get_data(meta),
        "get, cow": lambda: client.get_data(meta, mode="cow"),
        "put": lambda: client.put(batch(), partition_id="p"),
        "put, keys": lambda: client.kv_batch_put(["k"], "keys", TensorDict({"x": torch.ones(1)}, [1])),
        "alloc": lambda: client.alloc({"x": ((WIDTH,), torch.int64)}, partition_id="p", batch_size=ROWS),
        "list": lambda: client.kv_list("keys"),
        "clear": lambda: client.clear_samples(meta),
        "wait": lambda: client.get_meta("x", ROWS, "p", mode="fetch", timeout=0.2, task_name="t"),
        "claim": lambda: client.claim("t", "p", fields="x", batch_size=1, lease_s=3),
        "coalesce": lambda: client.coalesce(meta),
        "stats": client.stats,
    }


def close_and_go_on(pipe: Connection, session: str, folder: str, creates: bool, reopen: bool) -> None:
    """Answers with what each call did; what became of the program's files; whether a view still reads right; and, of
    who did not create the session, whether a new attachment does."""
    joined = tq.init(session=session)
    assert joined.creator == creates
    client = joined.client
    meta = client.put(batch(), partition_id="p")
    pending = client.alloc({"x": ((WIDTH,), torch.int64)}, partition_id="p", batch_size=ROWS)
    view = client.get_data(meta)["x"]
    files = close_all(pipe, folder, reopen=reopen)
    errors = {name: outcome(call) for name, call in calls(client, meta).items()}
    errors["commit"] = outcome(pending.commit)
    del pending
    intact = torch.equal(view, batch()["x"])
    tq.close()
    again = True
    if not creates:
        again = torch.equal(tq.init(session=session).client.get_data(meta)["x"], batch()["x"])
        tq.close()
    pipe.send((errors, damage(files), intact, again))
