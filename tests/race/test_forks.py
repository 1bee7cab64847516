"""Forks at every inconvenient moment: with views, with allocations, amid calls of other threads, before an exec."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch

import transferqueue as tq
from tests.race import deeds
from tests.race.paused import Call
from tests.support.nursery import ROOT
from tests.support.sessions import Forked, in_child, wait_for
from tests.support.versioned_rows import WIDTH, rows, versions_of
from transferqueue import BatchMeta, TransferQueueClient, _native

pytestmark = pytest.mark.timeout(120)
EIGHT = list(range(8))


def versions(version: int) -> list[tuple[int, int]]:
    return [(number, version) for number in EIGHT]


@pytest.fixture
def meta(client: TransferQueueClient) -> BatchMeta:
    return client.put(rows(EIGHT, 1), partition_id="p")


def leases(client: TransferQueueClient) -> dict[int, int]:
    return {entry.pid: entry.leases for entry in client.stats().clients}


# -- views -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["cow", "shared"])
def test_a_child_reads_its_views_after_the_parent_cleared_and_reused(
    client: TransferQueueClient, meta: BatchMeta, mode: str
) -> None:
    held = [client.get_data(meta, mode=mode)]

    def child(parent: Connection) -> None:
        parent.send("born")
        parent.recv()
        assert versions_of(held[0]) == versions(1)
        if mode == "cow":
            held[0]["x"].fill_(-1)
        held.clear()
        parent.send("dropped")
        parent.recv()

    forked = Forked(child)
    assert forked.hear() == "born"
    held.clear()
    client.clear_samples(meta)
    client._store.reclaim()
    assert client._store.stats()["retired_bytes"] > 0, "the child leases it"
    deeds.fill_all_room(client, 0xEE)
    forked.say("look")
    assert forked.hear() == "dropped"
    client._store.reclaim()
    assert client._store.stats()["retired_bytes"] == 0
    forked.say("end")
    assert forked.join() == 0


def test_a_parent_keeps_its_views_whatever_the_child_does(client: TransferQueueClient, meta: BatchMeta) -> None:
    held = [client.get_data(meta)]

    def child() -> None:
        held[0]["x"].fill_(-1)
        held.clear()
        client.clear_partition("p")
        client._store.reclaim()
        deeds.fill_all_room(client, 0xEE)
        tq.close()

    assert in_child(child) == 0
    assert versions_of(held[0]) == versions(1)


def test_what_a_killed_child_inherited_is_free(client: TransferQueueClient, meta: BatchMeta) -> None:
    held = [client.get_data(meta)]
    forked = Forked(lambda parent: parent.recv())
    held.clear()
    client.clear_samples(meta)
    client._store.reclaim()
    assert client._store.stats()["retired_bytes"] > 0
    forked.kill()
    client._store.reap()
    client._store.reclaim()
    assert client._store.stats()["retired_bytes"] == 0
    assert list(leases(client)) == [os.getpid()]


def test_views_written_by_the_parent_before_the_fork(client: TransferQueueClient, meta: BatchMeta) -> None:
    """The child has the parent's values, as in any fork, and a fresh get has the stored ones."""
    held = client.get_data(meta)
    held["x"].fill_(-4)

    def child() -> None:
        assert held["x"].unique().tolist() == [-4]
        assert versions_of(client.get_data(meta)) == versions(1)
        held["x"].fill_(-5)

    assert in_child(child) == 0
    assert held["x"].unique().tolist() == [-4]


def test_grandchildren(client: TransferQueueClient, meta: BatchMeta) -> None:
    held = [client.get_data(meta)]

    def child(parent: Connection) -> None:
        def grandchild() -> None:
            assert versions_of(held[0]) == versions(1)
            client.put(rows(EIGHT, 2), metadata=meta.copy())
            assert versions_of(held[0]) == versions(1)

        parent.recv()
        assert in_child(grandchild) == 0
        assert versions_of(client.get_data(meta)) == versions(2)

    forked = Forked(child)
    held.clear()
    forked.say()
    assert forked.join() == 0
    assert deeds.read(client, meta) == versions(2)


# -- the child's own use ---------------------------------------------------------------------------------------------


def test_a_child_uses_everything(client: TransferQueueClient, meta: BatchMeta) -> None:
    asyncio.run(client.async_get_data(meta))  # the threads of the asynchronous face stay with the parent

    def child() -> None:
        assert tq.get_client() is client
        assert deeds.read(client, meta) == versions(1)
        made = client.put(rows([20], 1), partition_id="child")
        assert asyncio.run(client.async_get_data(made))["n"].tolist() == [[20, 1]]
        for call in [Call(deeds.read, client, meta) for _ in range(4)]:
            assert call.result() == versions(1)
        client.kv_put("key", "child", {"v": torch.tensor(1)}, tag={"t": 1})
        taken = client.get_meta("x", 4, "p", task_name="t")
        client.coalesce(taken)
        allocation = client.alloc({"y": ((WIDTH,), torch.int64)}, partition_id="child", batch_size=2)
        allocation.data["y"].fill_(3)
        assert client.get_data(allocation.commit())["y"].unique().tolist() == [3]
        tq.close()

    assert in_child(child) == 0
    assert client.get_consumption_status("t", "p")[1].sum() == 4
    assert deeds.read(client, client.get_meta(["n", "r", "s", "x"], 0, "p", mode="force_fetch")) == versions(1)
    assert client.kv_list("child")["child"] == {"key": {"t": 1}}
    client._store.reap()  # it ended without dropping its allocation
    assert list(leases(client)) == [os.getpid()]


def test_a_child_that_leaves_does_not_take_the_session_with_it(client: TransferQueueClient, meta: BatchMeta) -> None:
    for _ in range(3):
        assert in_child(tq.close) == 0
        assert in_child(lambda: None) == 0
        assert deeds.read(client, meta) == versions(1)


# -- allocations -----------------------------------------------------------------------------------------------------


def test_a_childs_copy_of_an_allocation_reaches_nobody(client: TransferQueueClient) -> None:
    allocation = client.alloc({"x": ((WIDTH,), torch.int64)}, partition_id="p", batch_size=8)
    kept = allocation.data["x"]
    kept.fill_(1)

    def child(parent: Connection) -> None:
        kept.fill_(-1)
        parent.send("written")
        parent.recv()
        kept.fill_(-2)
        with pytest.raises(RuntimeError, match="parent"):
            allocation.commit()
        allocation.abort()
        parent.send("aborted")
        parent.recv()
        kept.fill_(-3)

    forked = Forked(child)
    assert forked.hear() == "written"
    assert kept.unique().tolist() == [1]
    forked.say()
    assert forked.hear() == "aborted"
    made = allocation.commit()
    forked.say()
    assert forked.join() == 0
    assert client.get_data(made)["x"].unique().tolist() == [1]
    assert kept.unique().tolist() == [1]


def test_an_allocation_whose_parent_dies_is_given_back_although_a_child_has_its_tensors(
    client: TransferQueueClient, meta: BatchMeta
) -> None:
    def producer(test: Connection) -> None:
        allocation = client.alloc({"x": ((WIDTH,), torch.int64)}, partition_id="p", batch_size=8)
        kept = allocation.data["x"]
        kept.fill_(5)

        def child(_: Connection) -> None:
            test.send(os.getpid())
            test.recv()
            kept.fill_(-1)
            test.send(kept.unique().tolist())

        Forked(child)
        signal.pause()

    forked = Forked(producer)
    grandchild = forked.hear()
    assert client.stats().pending_bytes > 0
    os.kill(forked.pid, signal.SIGKILL)
    os.waitpid(forked.pid, 0)
    client._store.reap()
    assert client.stats().pending_bytes == 0
    deeds.fill_all_room(client, 0xEE)
    forked.say()
    assert forked.hear() == [-1]
    wait_for(lambda: not os.path.exists(f"/proc/{grandchild}/fd") or not os.listdir(f"/proc/{grandchild}/fd"))
    filler = client.get_meta("x", 0, "filler", mode="force_fetch")
    for row in range(filler.size):
        assert client.get_data(filler.select_samples([row]))["x"].unique().tolist() == [0xEE]


# -- other threads ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "point",
    ["put.after_copy", "put.before_publish", "index.before_commit:1", "index.after_commit:1", "retire.before_scan"],
)
def test_a_fork_amid_a_put_of_another_thread(client: TransferQueueClient, meta: BatchMeta, point: str) -> None:
    """The fork waits for the step of the put that it meets (300 ms at the point). From the publication on that is all
    of it; before, the child may be born between two steps, and sees the rows as they were."""
    seen = [versions(2)] if point != "put.after_copy" else [versions(1), versions(2)]
    name, _, after = point.partition(":")
    _native.arm_pause(name, "delay", after=int(after or 0))
    put = Call(deeds.overwrite, client, meta, EIGHT, 2)
    try:
        wait_for(lambda: _native.paused(name) or put.done(), what="the put")
        amid = _native.paused(name)

        def child() -> None:
            _native.resume(name)
            assert deeds.read(client, meta) in seen
            client.put(rows([50], 1), partition_id="child")

        assert in_child(child) == 0
        assert amid
    finally:
        _native.resume(name)
    put.result()
    assert deeds.read(client, meta) == versions(2)


@pytest.mark.parametrize("point", ["get.after_resolve", "lease.before_recheck", "get.after_lease", "copy.midway"])
def test_a_fork_amid_a_get_of_another_thread(client: TransferQueueClient, meta: BatchMeta, point: str) -> None:
    """What the other thread leases is not the child's to keep for ever: it ends with the child."""
    _native.arm_pause(point, "delay")
    get = Call(deeds.read, client, meta, "copy")
    try:
        wait_for(lambda: _native.paused(point) or get.done(), what="the get")
        amid = _native.paused(point)

        def child() -> None:
            _native.resume(point)
            client.put(rows(EIGHT, 2), metadata=meta.copy())
            assert deeds.read(client, meta) == versions(2)

        assert in_child(child) == 0
        assert amid
    finally:
        _native.resume(point)
    assert get.result() == versions(1)
    assert deeds.read(client, meta) == versions(2)


def test_forks_amid_threads_that_do_everything(client: TransferQueueClient) -> None:
    """Twelve children of a process whose threads put, get, drop, clear, allocate and collect all the time."""
    stop = threading.Event()
    stable = client.put(rows(EIGHT, 1), partition_id="stable")

    def busy(number: int) -> int:
        turns = 0
        while not stop.is_set():
            made = client.put(rows([number, number + 1], turns), partition_id=f"busy{number}")
            held = client.get_data(made)
            client.clear_samples(made)
            assert versions_of(held) == [(number, turns), (number + 1, turns)]
            allocation = client.alloc({"x": ((9000,), torch.int64)}, partition_id=f"busy{number}", batch_size=1)
            allocation.data["x"].fill_(turns)
            if turns % 2:
                allocation.abort()
            else:
                client.clear_samples(allocation.commit())
            turns += 1
        return turns

    threads = [Call(busy, number) for number in (100, 200, 300)]

    def child() -> None:
        assert deeds.read(client, stable) == versions(1)
        made = client.put(rows([1], os.getpid()), partition_id="children")
        assert versions_of(client.get_data(made)) == [(1, os.getpid())]
        client.clear_samples(made)

    try:
        for _ in range(12):
            assert in_child(child) == 0
    finally:
        stop.set()
    assert all(thread.result() > 0 for thread in threads)


def test_no_property_of_the_package_takes_a_lock() -> None:
    """Before Python 3.12 `functools.cached_property` has one lock for all instances: held by another thread at the
    moment of a fork, it stays held in the child for ever."""
    sources = [path for name in ("transferqueue", "workers", "controller") for path in (ROOT / name).rglob("*.py")]
    assert len(sources) > 50
    assert [path.name for path in sources if re.search(r"^\s*@.*cached_property", path.read_text(), re.MULTILINE)] == []


# -- exec ------------------------------------------------------------------------------------------------------------


def test_programs_that_are_started_leave_nothing(client: TransferQueueClient, meta: BatchMeta) -> None:
    """By a fork of the C library and by fork and exec in Python: neither lease nor lock nor descriptor passes on."""
    held: Any = client.get_data(meta)
    before = leases(client)
    listed = subprocess.run(["ls", "-l", "/proc/self/fd"], capture_output=True, text=True, check=True, close_fds=False)
    assert "/proc" in listed.stdout
    assert client.session not in listed.stdout
    pid = os.fork()
    if pid == 0:
        os.execv("/bin/sleep", ["sleep", "60"])
    try:
        # The kernel tears the old memory down first and closes descriptors after that: not at once.
        wait_for(lambda: client._store.reap() is not None and leases(client) == before, what="the end of its leases")
        assert os.readlink(f"/proc/{pid}/exe").endswith("sleep")
        client.clear_samples(meta)
        assert versions_of(held) == versions(1)
        held = None
        client._store.reclaim()
        assert client._store.stats()["retired_bytes"] == 0, "the other program keeps nothing"
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


FIRST_CALLS = """
import os, sys, threading, time, torch, transferqueue as tq
from tensordict import TensorDict

calls = {
    "put": lambda where: tq.put(TensorDict({"x": torch.ones(2)}, [2]), partition_id="p"),
    "save": lambda where: tq.save_checkpoint(f"{sys.argv[2]}/{where}"),
}
with tq.init(**{"storage.size": "32MiB"}):
    call = calls[sys.argv[1]]
    first = threading.Thread(target=call, args=("parent",))
    first.start()
    child = os.fork()
    if child == 0:
        tq.kv_list()
        call("child")
        os._exit(0)
    print(os.waitpid(child, 0)[1])
    first.join()
"""


@pytest.mark.parametrize("call", ["put", "save"])
def test_a_fork_amid_the_first_call_of_another_thread(call: str, tmp_path: Path) -> None:
    """What a call needs is imported when it is first made; an import that the fork cuts in two is never done."""
    finished = subprocess.run(
        [sys.executable, "-c", FIRST_CALLS, call, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (finished.returncode, finished.stdout) == (0, "0\n"), finished.stderr
