"""What processes do when they are killed. Each joins the session, prepares, arms the point and walks into it.

`Arm` is called right before the step that is meant to kill: what comes before passes the same points unharmed.
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import torch
from tensordict import TensorDict

import transferqueue as tq
from tests.support import compaction
from tests.support.versioned_rows import WIDTH, rows, versions_of
from transferqueue import BatchMeta, TransferQueueClient, _native
from transferqueue.service.joining import Joining
from transferqueue.service.moving import Mover

Arm = Callable[[], None]
Deed = Callable[..., None]


def victim(_: Connection, session: str, point: str, deed: Deed, *arguments: Any) -> None:
    """Joins, and does the deed with `point` (``name[:passes before]``) armed. Ends normally when it survives."""
    tq.init(session=session)
    client = tq.get_client()
    client.get_partition_list()
    name, _, after = point.partition(":")
    deed(client, lambda: _native.arm_pause(name, "kill", after=int(after or 0)), *arguments)
    tq.close()


def joiner(_: Connection, session: str, point: str) -> None:
    """Dies while it joins."""
    name, _, after = point.partition(":")
    _native.arm_pause(name, "kill", after=int(after or 0))
    tq.init(session=session)


def put_new(client: TransferQueueClient, arm: Arm, numbers: list[int], version: int) -> None:
    batch = rows(numbers, version)
    arm()
    client.put(batch, partition_id="plain")


def overwrite(client: TransferQueueClient, arm: Arm, meta: BatchMeta, numbers: list[int], version: int) -> None:
    batch = rows(numbers, version)
    arm()
    client.put(batch, metadata=meta)


def put_keys(client: TransferQueueClient, arm: Arm, numbers: list[int], version: int) -> None:
    batch = rows(numbers, version)
    arm()
    client.kv_batch_put([f"k{n}" for n in numbers], "keyed", batch, [{"version": version, "n": n} for n in numbers])


def put_in_place(client: TransferQueueClient, arm: Arm, numbers: list[int], version: int, keep: bool) -> None:
    batch = rows(numbers, version)
    spec = {
        "x": ((WIDTH,), torch.int64),
        "n": ((2,), torch.int64),
        "r": tq.Jagged([len(row) for row in batch["r"].unbind()], torch.int64),
    }
    allocation = client.alloc(spec, partition_id="keyed", keys=[f"k{n}" for n in numbers])
    for name in ("x", "n"):
        allocation.data[name].copy_(batch[name])
    allocation.data["r"].values().copy_(batch["r"].values())
    kept = allocation.data["x"] if keep else None
    arm()
    allocation.commit(
        extra=TensorDict({"s": batch["s"]}, [len(numbers)]), tags=[{"version": version, "n": n} for n in numbers]
    )
    if kept is not None:
        kept.fill_(-1)
    del kept


def abandon_in_place(client: TransferQueueClient, arm: Arm, how: str) -> None:
    allocation = client.alloc({"x": ((WIDTH,), torch.int64)}, partition_id="plain", batch_size=16)
    kept = allocation.data["x"]
    kept.fill_(7)
    if how == "abort":
        del kept
    arm()
    if how != "nothing":
        allocation.abort()
    kept = None
    client.get_partition_list()
    client.stats()


def clear_rows(client: TransferQueueClient, arm: Arm, meta: BatchMeta) -> None:
    arm()
    client.clear_samples(meta)


def clear_keys(client: TransferQueueClient, arm: Arm, keys: list[str]) -> None:
    arm()
    client.kv_clear(keys, "keyed")


def clear_partition(client: TransferQueueClient, arm: Arm, partition: str) -> None:
    arm()
    client.clear_partition(partition)


def coalesce(client: TransferQueueClient, arm: Arm, meta: BatchMeta) -> None:
    arm()
    client.coalesce(meta)


def compact(client: TransferQueueClient, arm: Arm) -> None:
    arm()
    compaction.compact(client)


def slide(client: TransferQueueClient, arm: Arm, wanted_nbytes: int) -> None:
    joining = Joining(client._store, Mover(client._store))
    arm()
    assert joining.slide(wanted_nbytes)


def read(client: TransferQueueClient, arm: Arm, meta: BatchMeta, mode: str) -> None:
    held = client.get_data(meta, mode=mode)
    arm()
    again = client.get_data(meta, mode=mode)
    del held
    del again


def drop(client: TransferQueueClient, arm: Arm, meta: BatchMeta) -> None:
    """Of what is dropped another thread takes care."""
    held = client.get_data(meta)
    arm()
    del held
    time.sleep(10)


def hold(client: TransferQueueClient, arm: Arm, meta: BatchMeta, mode: str) -> None:
    """Dies with views in hand, written to where that is allowed."""
    held = client.get_data(meta, mode=mode)
    if mode == "cow":
        held["x"].fill_(-1)
    arm()
    client.put(rows([10_000], 0), partition_id="dead end")


def hold_until_killed(pipe: Connection, session: str, meta: BatchMeta) -> None:
    """With views and a reservation; killed from outside."""
    client = tq.init(session=session).client
    held = client.get_data(meta)
    allocation = client.alloc({"x": ((WIDTH,), torch.int64)}, partition_id="plain", batch_size=8)
    pipe.send("holding")
    pipe.recv()
    del held, allocation


def read_until_killed(pipe: Connection, session: str, meta: BatchMeta, mode: str) -> None:
    """Holds the rows; looks at them whenever told to. Killed from outside."""
    client = tq.init(session=session).client
    held = client.get_data(meta, mode=mode)
    before = versions_of(held)
    pipe.send("reading")
    while True:
        pipe.recv()
        pipe.send("as it was" if versions_of(held) == before else "changed")


def serve_until_killed(pipe: Connection, session: str) -> None:
    """Says whether it runs the session's service, at the start and whenever asked. Killed from outside."""
    made = tq.init(session=session, **{"storage.size": "64MiB"})
    while True:
        made.client.get_partition_list()
        pipe.send(made.service.running)
        pipe.recv()


def set_tags(client: TransferQueueClient, arm: Arm, meta: BatchMeta, value: int) -> None:
    meta.custom_meta = [{"tagged": value}] * meta.size
    arm()
    client.set_custom_meta(meta)


def consume(client: TransferQueueClient, arm: Arm, task: str, count: int) -> None:
    arm()
    client.get_meta(["x"], count, "plain", task_name=task, timeout=0)


def forget_consumption(client: TransferQueueClient, arm: Arm, task: str) -> None:
    arm()
    client.reset_consumption("plain", task)


def insert(client: TransferQueueClient, arm: Arm, partition: str, count: int) -> None:
    arm()
    client.get_meta(["x"], count, partition, mode="insert")


def housekeeping(client: TransferQueueClient, arm: Arm, what: str) -> None:
    """`what`: reap, reclaim, trim; after somebody else died with views, reservations and cleared rows."""
    arm()
    getattr(client._store, what)()


def populate(client: TransferQueueClient, arm: Arm, nbytes: int) -> None:
    arm()
    client._store.populate(nbytes)


def put_large(client: TransferQueueClient, arm: Arm, nbytes: int) -> None:
    batch = TensorDict({"x": torch.ones(1, nbytes, dtype=torch.uint8)}, [1])
    arm()
    client.put(batch, partition_id="large")


def fork_with_views(client: TransferQueueClient, arm: Arm, meta: BatchMeta) -> None:
    held = client.get_data(meta)
    arm()
    pid = os.fork()
    if pid == 0:
        os.kill(os.getpid(), 9)
    os.waitpid(pid, 0)
    del held


def lock_task(client: TransferQueueClient, arm: Arm, task: str) -> None:
    arm()
    with client._store.lock_task("plain", task, 5.0):
        pass


def fork_a_child_that_dies(pipe: Connection, session: str, meta: BatchMeta) -> None:
    client = tq.init(session=session).client
    held = client.get_data(meta)
    before = versions_of(held)
    _native.arm_pause("fork.in_child", "kill")
    pid = os.fork()
    if pid == 0:
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -9
    pipe.send("as it was" if versions_of(held) == before else "changed")
    del held
    tq.close()


def leave(client: TransferQueueClient, arm: Arm, meta: BatchMeta) -> None:
    held = client.get_data(meta)
    arm()
    tq.close()
    pickle.dumps(held["x"])
    del held


def spill(client: TransferQueueClient, arm: Arm) -> None:
    arm()
    client._store.spill(1 << 40)


def large_batch(value: int, nbytes: int) -> TensorDict:
    """Rows of 1 MiB."""
    return TensorDict({"x": torch.full((nbytes >> 20, 1 << 20), value, dtype=torch.uint8)}, [nbytes >> 20])


def put_when_full(client: TransferQueueClient, arm: Arm, nbytes: int) -> None:
    """Finds no room and makes some."""
    batch = large_batch(1, nbytes)
    arm()
    client.put(batch, partition_id="filler", timeout=10)
