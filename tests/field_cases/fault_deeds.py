"""What other processes do in the cases of faults and shared memory."""

from __future__ import annotations

import ctypes
import os
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDict

import transferqueue as tq
from transferqueue.storage.session_lock import SessionLock

SMALL = {"storage.size": "8MiB", "storage.index_size": "2MiB"}


def attach_and_close(pipe: Connection, name: str, rounds: int) -> None:
    for _ in range(rounds):
        tq.attach(name).close()
    pipe.send("done")


def attach_under_a_limit(pipe: Connection, name: str) -> None:
    """With too little address space for the mappings, then with enough."""
    import resource

    used_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * 4096
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used_bytes + (4 << 20), most))
    try:
        tq.attach(name)
        failed = ""
    except (tq.TransferQueueError, OSError, MemoryError) as error:
        failed = type(error).__name__
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    pipe.send((failed, tq.attach(name).client.kv_batch_get("k", "p")["x"].tolist()))


def leave_a_dead_session(pipe: Connection, name: str) -> None:
    tq.init(session=name, **SMALL)
    pipe.send("ready")
    pipe.recv()


def serve(pipe: Connection, name: str) -> None:
    """A service of its own session, started when told to; says whether it runs."""
    pipe.send("ready")
    pipe.recv()
    try:
        with tq.init(session=name, **SMALL) as session:
            tq.kv_put("k", "p", {"x": torch.tensor(1)})
            pipe.send(session.service.running and tq.kv_batch_get("k", "p")["x"].tolist() == [1])
            pipe.recv()
    except (tq.TransferQueueError, OSError) as error:
        pipe.send(repr(error))


def read_only(pipe: Connection, name: str) -> None:
    view = tq.attach(name).client.kv_batch_get("k", "p")
    pipe.send(int(view["x"].sum()))
    pipe.recv()


def take_a_batch(pipe: Connection, name: str) -> None:
    """A consuming step that does not come to its end."""
    claim = tq.attach(name).client.claim("step", "p", fields=["x"], batch_size=4, lease_s=600)
    pipe.send(claim.meta.size)
    pipe.recv()


def join_and_read(pipe: Connection, name: str) -> None:
    try:
        pipe.send(("read", tq.attach(name).client.kv_batch_get("k", "p")["x"].tolist()))
    except tq.TransferQueueError as error:
        pipe.send((type(error).__name__, str(error)))


def hold_the_gil(pipe: Connection, name: str, seconds: int) -> None:
    """With a live view, which must be the same afterwards. A call through PyDLL keeps the interpreter's lock."""
    session = tq.attach(name)
    session.service.stop()
    view = session.client.kv_batch_get("k", "p")["x"]
    pipe.send("holding")
    ctypes.PyDLL(None).sleep(seconds)
    pipe.send((int(view.sum()), session.client.kv_batch_get("k", "p", mode="copy")["x"].tolist() == view.tolist()))
    tq.close()


def put_and_exit(pipe: Connection, name: str) -> None:
    meta = tq.attach(name).client.put(TensorDict({"x": torch.arange(50_000)}, [50_000]), partition_id="p")
    pipe.send(meta)
    tq.close()


def get_all(pipe: Connection, meta: tq.BatchMeta) -> None:
    assert meta.session is not None
    pipe.send(int(tq.attach(meta.session).client.get_data(meta)["x"].sum()))
    tq.close()


class Breaks:
    """An object whose reading fails, as a lost transfer would."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _broken, ()


def _broken() -> None:
    raise ConnectionError("lost on the way")


def is_locked(path: str) -> bool:
    """Whether some process holds a lock file."""
    lock = SessionLock(path)
    try:
        return not lock.try_exclusive()
    finally:
        lock.close()


def names_with(word: str) -> list[str]:
    """Whatever in shared memory or /tmp has the word in its name."""
    return sorted(f"{folder}/{name}" for folder in ("/dev/shm", "/tmp") for name in os.listdir(folder) if word in name)
