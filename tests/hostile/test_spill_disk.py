"""A spill disk that is full to the last byte, or whose file others change."""

from __future__ import annotations

import contextlib
import errno
import resource
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch
from tensordict import TensorDict

from tests.support.quiet import without_service
from tests.support.sessions import embedded
from tests.support.small_file_systems import run_with_small
from tests.support.space import is_settled
from transferqueue import TransferQueueClient

pytestmark = pytest.mark.timeout(120)

ON_A_SMALL_DISK = """
import os, sys, torch, transferqueue as tq
from tensordict import TensorDict

MIB = 1 << 20
disk = sys.argv[1]

def rows(value, count=1):
    return TensorDict({"x": torch.full((count, MIB), value, dtype=torch.uint8)}, [count])

def all_there(client, metas):
    return all(bool((client.get_data(meta)["x"] == value).all()) for value, meta in enumerate(metas))

# Larger than the disk: refused with both sizes, nothing made.
try:
    tq.init(**{"storage.size": 8 * MIB, "spill.dir": disk, "spill.size": 64 * MIB})
except tq.StorageFullError as error:
    print("refused", "64.0 MiB" in str(error), "16.0 MiB" in str(error), error.resource)
assert os.listdir(disk) == os.listdir("/dev/shm") == []

with tq.init(**{"storage.size": 8 * MIB, "spill.dir": disk, "spill.size": 16 * MIB, "spill.keep_free": 0}) as session:
    client = session.client
    with open(f"{disk}/somebody-elses", "wb") as file:  # takes 6 of the 16 MiB behind the session's back
        file.write(bytes(6 * MIB))
    metas = []
    while True:
        try:
            metas.append(client.put(rows(len(metas)), partition_id="p", timeout=0))
        except tq.StorageFullError as error:
            stats = client.stats()
            print("full", stats.spilled_bytes // MIB, error.details["spilled_bytes"] == stats.spilled_bytes)
            break
    free = os.statvfs(disk)
    print("to the last", free.f_bavail * free.f_frsize < MIB)
    print("nothing lost", all_there(client, metas), len(metas))
    client._store.check()
    # Room on the disk again: puts go on.
    os.unlink(f"{disk}/somebody-elses")
    while len(metas) < 22:
        metas.append(client.put(rows(len(metas)), partition_id="p", timeout=20))
    print("goes on", all_there(client, metas))
    # A put that waits gets the room that a clear makes.
    client.clear_partition("p")
    stats = client.stats()
    print("empty", stats.spilled_bytes, stats.free_bytes // MIB, stats.spill_free_bytes // MIB)
    held = os.statvfs(disk).f_bavail
    client.trim()
    print("trimmed", (os.statvfs(disk).f_bavail - held) * os.statvfs(disk).f_frsize // MIB >= 14)
    metas = [client.put(rows(value), partition_id="p", timeout=20) for value in range(20)]
    print("again", all_there(client, metas))
    # The disk fills after trim gave the file's blocks back: what was set aside is set aside again, or nothing moves.
    client.clear_partition("p")
    client.trim()
    with open(f"{disk}/somebody-elses", "wb") as file:
        try:
            while True:
                file.write(bytes(1 << 16))
                file.flush()
        except OSError:
            pass
    metas = [client.put(rows(value), partition_id="p", timeout=0) for value in range(7)]
    try:
        client.put(rows(9, 3), partition_id="p", timeout=0.3)
    except tq.StorageFullError:
        print("no room", all_there(client, metas))
    client._store.check()
    os.unlink(f"{disk}/somebody-elses")
    client.put(rows(9, 3), partition_id="p", timeout=20)
    print("room", all_there(client, metas))
print("left", os.listdir(disk), os.listdir("/dev/shm"))
"""


def test_a_disk_of_16_mib() -> None:
    """In a mount namespace of its own, where /dev/shm and the disk are small file systems."""
    done = run_with_small({"/dev/shm": "64m", "/mnt": "16m"}, ON_A_SMALL_DISK, "/mnt")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if not line.startswith("to the last")]
    assert lines == [
        "refused True True spill",
        "full 9 True",
        "nothing lost True 17",
        "goes on True",
        "empty 0 8 16",
        "trimmed True",
        "again True",
        "no room True",
        "room True",
        "left [] []",
    ]


MIB = 1 << 20
HEADER = 64 << 10  # what stands before the blocks in the file


@contextlib.contextmanager
def files_end_at(nbytes: int) -> Iterator[None]:
    """Whatever this process writes beyond it fails, as on a disk with a bad end."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)


def rows(value: int, count: int = 1) -> TensorDict:
    return TensorDict({"x": torch.full((count, MIB), value, dtype=torch.uint8)}, [count])


def put_all(client: TransferQueueClient, values: Sequence[int]) -> None:
    for value in values:
        client.put(rows(value, 3), partition_id="q", timeout=0)


def test_a_disk_that_fails_amid_a_move(tmp_path: Path) -> None:
    """The put that needed the room gets the disk's error; no row is lost, and nothing of the move is left."""
    options = {"storage.size": 8 * MIB, "spill.dir": str(tmp_path), "spill.size": 16 * MIB, "spill.keep_free": 0}
    with embedded(**options) as session, without_service(session):
        client, store = session.client, session.client._store
        metas = [client.put(rows(value), partition_id="p", timeout=0) for value in range(7)]

        def all_there() -> bool:
            return all(bool((client.get_data(meta)["x"] == value).all()) for value, meta in enumerate(metas))

        # In the middle of the fourth block: of a move of three by three, the second fails half-way.
        with files_end_at(HEADER + 4 * MIB + MIB // 2):
            with pytest.raises(OSError) as caught:
                put_all(client, (100, 101))
            assert caught.value.errno == errno.EFBIG
            assert all_there()
            assert is_settled(store)
            store.check()
            # What needs no disk goes on.
            client.clear_samples(metas.pop())
            metas.append(client.put(rows(len(metas)), partition_id="p", timeout=0))
        client.put(rows(102, 3), partition_id="q", timeout=0)
        assert client.stats().spilled_bytes > 0
        assert all_there()
        store.check()
    assert list(tmp_path.iterdir()) == []
