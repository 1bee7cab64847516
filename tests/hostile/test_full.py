"""A store, an index and a file system that are full to the last byte: a typed error with what is there, nothing stored
by halves, and everything fits again after a clear."""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Callable, Iterator
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch
from tensordict import TensorDict

import transferqueue as tq
from tests.support.nursery import Nursery
from tests.support.quiet import without_service
from tests.support.sessions import embedded
from tests.support.small_file_systems import run_with_small
from tests.support.space import is_settled

pytestmark = pytest.mark.timeout(120)
MIB = 1 << 20


@pytest.fixture
def client() -> Iterator[tq.TransferQueueClient]:
    with embedded(**{"storage.size": 4 * MIB, "storage.index_size": 2 * MIB}) as session, without_service(session):
        yield session.client


def of_bytes(nbytes: int) -> TensorDict:
    return TensorDict({"x": torch.zeros(1, nbytes, dtype=torch.uint8)}, [1])


def how_many(put: Callable[[], object]) -> tuple[int, tq.StorageFullError]:
    """Puts until the first that finds no room."""
    for done in count():
        try:
            put()
        except tq.StorageFullError as full:
            return done, full
    raise AssertionError


def fill(put: Callable[[int], object], sizes: list[int]) -> tuple[int, tq.StorageFullError]:
    """Puts of these sizes until not even the last one fits; how many there were, and the last error."""
    found = [how_many(lambda nbytes=nbytes: put(nbytes)) for nbytes in sizes]  # type: ignore[misc]
    return sum(puts for puts, _ in found), found[-1][1]


@pytest.mark.parametrize("seed", [0, 1])
def test_payload_to_the_last_byte_with_mixed_sizes(client: tq.TransferQueueClient, seed: int) -> None:
    store = client._store
    chance = random.Random(seed)
    first = chance.choices([100, 3000, 40_000, 70_000, 300_000], k=12)
    for nbytes in first:
        client.put(of_bytes(nbytes), partition_id="p")
    client.clear_samples(client.get_meta("x", 0, "p", mode="force_fetch").select_samples([1, 4, 5, 8]))
    puts, error = fill(
        lambda nbytes: client.put(of_bytes(nbytes), partition_id="p", timeout=0), [700_000, 70_000, 64 << 10, 4096, 64]
    )
    assert (error.resource, error.wanted_bytes, error.total_bytes) == ("payload", 64, 4 * MIB)
    stats = store.stats()
    assert stats["free_bytes"] == stats["free_extent_bytes"] == error.free_bytes == 0
    assert error.used_bytes == stats["used_bytes"] == 4 * MIB
    assert (error.live_bytes, error.leased_bytes) == (stats["live_bytes"], 0)
    store.check()
    assert client.stats("p").rows["total"] == 12 - 4 + puts
    for refused in (
        lambda: client.kv_batch_put(["k"], "new", of_bytes(64), [{"a": 1}], timeout=0),
        lambda: client.alloc({"x": ((64,), torch.uint8)}, partition_id="new", batch_size=1, timeout=0),
    ):
        with pytest.raises(tq.StorageFullError):
            refused()
    assert client.get_partition_list() == ["p"]
    client.clear_partition("p")
    assert is_settled(store)
    assert client.get_data(client.put(of_bytes(4 * MIB), partition_id="p", timeout=0))["x"].shape == (1, 4 * MIB)


def test_a_put_into_a_full_store_waits_for_a_clear_or_a_dropped_view(client: tq.TransferQueueClient) -> None:
    client.put(of_bytes(3 * MIB), partition_id="p")
    view = client.get_data(client.get_meta("x", 1, "p", task_name="t"))
    client.clear_partition("p")
    with pytest.raises(tq.StorageFullError) as caught:
        client.put(of_bytes(2 * MIB), partition_id="p", timeout=0.05)
    assert (caught.value.used_bytes, caught.value.leased_bytes) == (0, 3 * MIB)
    assert caught.value.free_bytes == MIB
    del view
    client.put(of_bytes(2 * MIB), partition_id="p", timeout=30)


def test_field_case_75_a_put_that_finds_no_room_leaves_nothing() -> None:
    """16 rows in all: 12 go in, 8 more do not, as a whole and without their partition; cleared, 16 fit."""
    row = MIB // 16
    with embedded(**{"storage.size": MIB}) as session, without_service(session):
        client = session.client

        def rows(number: int) -> TensorDict:
            return TensorDict({"x": torch.zeros(number, row, dtype=torch.uint8)}, [number])

        client.put(rows(12), partition_id="first", timeout=0)
        with pytest.raises(tq.StorageFullError) as caught:
            client.kv_batch_put([f"k{i}" for i in range(8)], "second", rows(8), timeout=0)
        assert (caught.value.wanted_bytes, caught.value.free_bytes) == (8 * row, 4 * row)
        assert client.get_partition_list() == ["first"]
        assert client.kv_list() == {"first": {}}
        client.clear_partition("first")
        assert client.put(rows(16), partition_id="first", timeout=0).size == 16


# -- the index: by whatever can be many ------------------------------------------------------------------------------


def many_keys(client: tq.TransferQueueClient, number: int) -> None:
    client.kv_batch_put([f"{number}.{i}.{'k' * 40}" for i in range(200)], "many", tags=[{}] * 200)


def long_tags(client: tq.TransferQueueClient, number: int) -> None:
    client.kv_put(f"k{number}", "many", None, {"text": "t" * 9000})


def partitions(client: tq.TransferQueueClient, number: int) -> None:
    client.get_meta("x", 1, f"{number} {'p' * 380}", mode="insert")


def small_blocks(client: tq.TransferQueueClient, number: int) -> None:
    client.put(of_bytes(64), partition_id="many", timeout=0)


def many_fields(client: tq.TransferQueueClient, number: int) -> None:
    client.put(TensorDict({f"f{i} {'f' * 60}": torch.zeros(1) for i in range(60)}, [1]), partition_id="many", timeout=0)


def tasks(client: tq.TransferQueueClient, number: int) -> None:
    if number == 0:
        client.put(of_bytes(64), partition_id="many")
    client.get_meta("x", 1, "many", task_name=f"{number} {'t' * 380}")


def claims(client: tq.TransferQueueClient, number: int) -> None:
    if number % 500 == 0:
        client.put(TensorDict({"x": torch.zeros(500)}, [500]), partition_id="many", timeout=0)
    client.claim(f"{number} {'t' * 380}", "many", fields="x", batch_size=1, lease_s=600.0)


KINDS = [many_keys, long_tags, partitions, small_blocks, many_fields, tasks, claims]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_index_to_its_refusal_and_cleared_in_that_state(
    client: tq.TransferQueueClient, kind: Callable[[tq.TransferQueueClient, int], None]
) -> None:
    store = client._store
    numbers = count()

    def until_full() -> int:
        done, full = how_many(lambda: kind(client, next(numbers)))
        assert full.resource == "index"
        assert None not in (full.used_bytes, full.free_bytes, full.wanted_bytes, full.total_bytes)
        assert full.used_bytes + full.free_bytes <= full.total_bytes == 2 * MIB  # type: ignore[operator]
        assert full.wanted_bytes > full.free_bytes  # type: ignore[operator]
        # What the refused put had reserved was given back since.
        assert abs(full.used_bytes - store.stats()["index_used_bytes"]) <= 16 * 4096  # type: ignore[operator]
        store.check()
        return done

    first = until_full()
    assert first > 0
    assert client.stats().pending_bytes == 0
    # What is there can be read, and clears go through: a row at a time, and by partitions.
    partition = client.get_partition_list()[0]
    before = client.stats(partition).rows["total"]
    client.clear_samples(client.get_meta("x", 0, partition, mode="force_fetch").select_samples([0]))
    assert client.stats(partition).rows["total"] == before - 1
    for name in client.get_partition_list():
        client.clear_partition(name)
    assert is_settled(store)
    store.check()
    assert store.stats()["rows"] == 0
    numbers = count()
    assert until_full() >= first * 0.9


def test_an_index_full_of_names_of_fields_still_serves_what_it_knows(client: tq.TransferQueueClient) -> None:
    """Names of fields live as long as the session: a clear brings none of their room back."""
    meta = client.put(TensorDict({"x": torch.ones(4)}, [4]), partition_id="known")
    numbers = count()

    def with_new_fields() -> None:
        columns = {f"{next(numbers)} {'f' * 380}": torch.zeros(1) for _ in range(20)}
        client.put(TensorDict(columns, [1]), partition_id="many", timeout=0)
        client.clear_partition("many")

    _, full = how_many(with_new_fields)
    assert full.resource == "index"
    client._store.check()
    assert client.get_data(meta)["x"].tolist() == [1.0] * 4
    client.clear_partition("known")


# -- several processes at once ---------------------------------------------------------------------------------------


def churn(pipe: Connection, session: str, seed: int, seconds: float) -> None:
    """Fills whatever can be filled, and clears now and then; everything but a full store is an error."""
    tq.init(session=session)
    client = tq.get_client()
    chance = random.Random(seed)
    until_s = time.monotonic() + seconds
    full: dict[str, int] = {}
    numbers = count(seed * 1_000_000)
    kinds = [many_keys, long_tags, small_blocks, partitions]
    while time.monotonic() < until_s:
        try:
            if chance.random() < 0.5:
                client.put(of_bytes(chance.choice([64, 5000, 70_000, 400_000])), partition_id=f"p{seed}", timeout=0)
            else:
                chance.choice(kinds)(client, next(numbers))
        except tq.StorageFullError as error:
            full[error.resource] = full.get(error.resource, 0) + 1
            if chance.random() < 0.2:
                names = client.get_partition_list()
                if names:
                    client.clear_partition(chance.choice(names))
    pipe.send(full)
    tq.close()


def run_together(client: tq.TransferQueueClient, processes: int, seconds: float) -> None:
    with Nursery() as nursery:
        children = [nursery.start(churn, client.session, seed, seconds) for seed in range(1, processes + 1)]
        found: dict[str, int] = {}
        for child in children:
            for resource, times in child.receive(seconds + 60).items():
                found[resource] = found.get(resource, 0) + times
        assert [child.wait() for child in children] == [0] * processes
    client._store.check()
    assert found.keys() == {"payload", "index"}
    for name in client.get_partition_list():
        client.clear_partition(name)
    assert is_settled(client._store)
    client._store.check()
    client.put(of_bytes(4 * MIB), partition_id="p", timeout=0)


def test_several_processes_fill_store_and_index(client: tq.TransferQueueClient) -> None:
    run_together(client, 4, 1.5)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_several_processes_fill_store_and_index_for_long(client: tq.TransferQueueClient) -> None:
    run_together(client, 8, 120.0)


# -- a full file system, at each step that takes of it ---------------------------------------------------------------

ON_A_FULL_TMPFS = """
import os, shutil, subprocess, sys, tempfile, torch, transferqueue as tq
from contextlib import contextmanager
from tensordict import TensorDict
from transferqueue.storage import creation

MIB = 1 << 20
FILLER = "/dev/shm/somebody-elses"

def of_bytes(nbytes):
    return TensorDict({"x": torch.zeros(1, nbytes, dtype=torch.uint8)}, [1])

@contextmanager
def filled(leaving=0):
    with open(FILLER, "wb") as file:
        found = os.statvfs("/dev/shm")
        size = found.f_bavail * found.f_frsize - leaving
        while size > 0:
            try:
                os.posix_fallocate(file.fileno(), 0, size)
                break
            except OSError:
                size -= 4096
    try:
        yield
    finally:
        os.unlink(FILLER)

def refused(call):
    try:
        call()
    except tq.StorageFullError as error:
        figures = error.used_bytes, error.free_bytes, error.wanted_bytes, error.total_bytes, error.leased_bytes
        assert None not in figures[:4], (error, figures)
        return error.resource
    raise AssertionError("it went through")

# 1. Nothing, some and nearly all of what a session takes: whatever step it is that fails, nothing is left.
check_room = creation.check_room
creation.check_room = lambda config: None
steps = set()
KIB = 1 << 10
for leaving in (n * KIB for n in (0, 4, 8, 64, 300, 400, 1024, 2048, 16384, 17084, 18432)):
    with filled(leaving):
        try:
            with tq.init(**{"storage.size": "8MiB", "storage.index_size": "16MiB"}):
                steps.add("made")
        except tq.StorageFullError as error:
            assert None not in (error.wanted_bytes, error.total_bytes, error.free_bytes), error
            steps.add(error.resource)
        tq.close()
        assert os.listdir("/dev/shm") == ["somebody-elses"], (leaving, os.listdir("/dev/shm"))
creation.check_room = check_room
print("creation", sorted(steps))

options = {"storage.size": "40MiB", "storage.index_size": "16MiB"}
with tq.init(**options) as session:
    client, store = session.client, session.attachment.store
    kept = client.put(of_bytes(70_000), partition_id="kept")
    saved = tempfile.mkdtemp() + "/checkpoint"
    client.save_checkpoint(saved)
    with filled():
        # 2. Payload: its first step, of 32 MiB, is backed.
        print("payload", refused(lambda: [client.put(of_bytes(MIB), partition_id="p", timeout=0) for _ in range(39)]))
        print("held", client.stats("p").rows["total"])
        store.check()
        # 3. Leases: the first page holds 512.
        views = []
        lease = lambda: views.append(store.resolve("kept", indexes=kept.index_array))
        print("leases", refused(lambda: [lease() for _ in range(600)]))
        print("held", len(views))
        del views[:]
        # 4. Another process
        code = "import sys, transferqueue as tq; sys.excepthook = lambda *e: print(e[1].resource); tq.attach(%r)"
        done = subprocess.run([sys.executable, "-c", code % session.name], capture_output=True, text=True)
        print("joiner", done.stdout.strip(), done.stderr[-300:])
        # 5. Which session a checkpoint comes from: readers see the session as it was.
        print("load", refused(lambda: client.load_checkpoint(saved)))
        assert client.get_partition_list() == ["kept", "p"], client.get_partition_list()
        assert store.stats()["pending_bytes"] == 0
        # 6. Block table: its first step holds 8192 slots.
        client.clear_partition("p")
        store.reclaim()
        print("table", refused(lambda: [client.put(of_bytes(64), partition_id="p", timeout=0) for _ in range(9000)]))
        store.check()
        assert client.get_data(kept)["x"].shape == (1, 70_000)
        client.clear_partition("p")
    client.load_checkpoint(saved)
    assert client.get_partition_list() == ["kept"], client.get_partition_list()
    shutil.rmtree(os.path.dirname(saved))
    for _ in range(9000):
        client.put(of_bytes(64), partition_id="p", timeout=0)
    client.clear_partition("p")
    client.put(of_bytes(39 * MIB), partition_id="p", timeout=0)
    views = [store.resolve("kept", indexes=kept.index_array) for _ in range(600)]
    del views
    store.check()
    print("again")
assert os.listdir("/dev/shm") == []
print("end")
"""


def test_a_full_file_system_at_each_step_that_takes_of_it() -> None:
    """In a mount namespace of its own whose /dev/shm is 64 MiB."""
    done = run_with_small({"/dev/shm": "64m"}, ON_A_FULL_TMPFS)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "creation ['made', 'session']",
        "payload payload",
        "held 31",
        "leases lease file",
        "held 512",
        "joiner lease file ",
        "load session",
        "table block table",
        "again",
        "end",
    ]


def read_without_address_space(pipe: Connection, session: str, meta: tq.BatchMeta) -> None:
    """Reads with next to no address space left, and again with the rest of it. In a process of its own: what malloc
    keeps from earlier tests would hold the copy."""
    client = tq.init(session=session).client
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (mapped + MIB, before[1]))
    try:
        client.get_data(meta)
        pipe.send("read")
    except MemoryError as error:
        resource.setrlimit(resource.RLIMIT_AS, before)
        pipe.send(str(error))
    assert client.stats().leased_bytes == 0
    assert client.get_data(meta)["x"].shape == (1, 3 * MIB)


def test_an_address_space_without_room_for_a_view_or_a_copy(client: tq.TransferQueueClient) -> None:
    meta = client.put(of_bytes(3 * MIB), partition_id="p")
    with Nursery() as nursery:
        child = nursery.start(read_without_address_space, client.session, meta)
        assert "no memory for a copy of 3145728 bytes" in child.receive()
        assert child.wait() == 0
