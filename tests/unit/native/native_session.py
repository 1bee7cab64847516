"""A session made by hand, for the tests of the native module: segments, a directory, and puts and gets of raw bytes.

Nothing of `transferqueue` but the native module is used, so that a failure here is a failure of the core.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import posix_ipc

from transferqueue import _native
from transferqueue._native import DENSE, FieldLayout, PublishResult, Reservation, Resolved, Store
from transferqueue.errors import StorageFullError

if TYPE_CHECKING:  # a child process that copies bytes need not wait for torch
    import torch

MIB = 1 << 20
SEGMENTS = ("ctl", "tbl", "dat")
ROOT = Path(__file__).parents[3]


@dataclass(frozen=True)
class NativeSession:
    name: str

    @property
    def stem(self) -> str:
        # Not the prefix of real sessions: without a lock file, who cleans up after the dead would remove this one.
        return f"native-{os.getuid()}-{self.name}"

    @property
    def directory(self) -> Path:
        return Path("/dev/shm") / self.stem

    def create(self, payload_bytes: int, index_bytes: int, step_bytes: int, first_row: int = 0) -> None:
        self.directory.mkdir(mode=0o700)
        for suffix in SEGMENTS:
            posix_ipc.SharedMemory(f"/{self.stem}.{suffix}", posix_ipc.O_CREX, mode=0o600).close_fd()
        with self.opened() as descriptors:
            Store.format(
                str(self.directory),
                *descriptors,
                session=self.name,
                payload_bytes=payload_bytes,
                index_bytes=index_bytes,
                step_bytes=step_bytes,
                first_row=first_row,
            )

    @contextmanager
    def opened(self) -> Iterator[list[int]]:
        memories = [posix_ipc.SharedMemory(f"/{self.stem}.{suffix}") for suffix in SEGMENTS]
        try:
            yield [memory.fd for memory in memories]
        finally:
            for memory in memories:
                memory.close_fd()

    def attach(self) -> Store:
        with self.opened() as descriptors:
            return Store(str(self.directory), *descriptors, session=self.name)

    def remove(self) -> None:
        for suffix in SEGMENTS:
            Path(f"/dev/shm/{self.stem}.{suffix}").unlink(missing_ok=True)
        shutil.rmtree(self.directory, ignore_errors=not self.directory.exists())

    def lease_files(self) -> list[str]:
        return sorted(path.name for path in (self.directory / "leases").glob("*.lease"))


@contextmanager
def new_session(
    payload_bytes: int = 32 * MIB, index_bytes: int = 16 * MIB, step_bytes: int = 4 * MIB, first_row: int = 0
) -> Iterator[NativeSession]:
    session = NativeSession(f"p{os.getpid()}-{uuid.uuid4().hex[:12]}")
    try:
        session.create(payload_bytes, index_bytes, step_bytes, first_row)  # may fail half-way, which a test asks for
        yield session
    finally:
        session.remove()


def layouts(arrays: dict[str, npt.NDArray[Any]]) -> tuple[list[FieldLayout], int]:
    """Dense layouts one after another, each on a page of its own, and the bytes they take."""
    fields, end = [], 0
    for name, array in arrays.items():
        row_nbytes = array.nbytes // len(array)
        fields.append(FieldLayout(name, DENSE, end, array.nbytes, row_nbytes, schema=array.dtype.str.encode()))
        end += (array.nbytes + 4095) // 4096 * 4096
    return fields, end


def fill(reservation: Reservation, fields: Sequence[FieldLayout], arrays: dict[str, npt.NDArray[Any]]) -> None:
    reservation.copy_in(
        [(field.data_offset, arrays[field.name].ctypes.data, arrays[field.name].nbytes) for field in fields]
    )


def put(
    store: Store, partition: str, arrays: dict[str, npt.NDArray[Any]], *, timeout_s: float | None = 10.0, **rows: Any
) -> PublishResult:
    """Rows x fields from contiguous arrays of one length: new rows, unless `rows` names indexes or keys."""
    fields, nbytes = layouts(arrays)
    reservation = store.reserve(nbytes, timeout_s)
    fill(reservation, fields, arrays)
    if not rows:
        rows = {"count": len(next(iter(arrays.values())))}
    return store.publish(partition, reservation=reservation, fields=fields, **rows)


def as_tensor(capsule: Any) -> torch.Tensor:
    import torch

    return torch.from_dlpack(capsule)


def view(resolved: Resolved, field: int = 0, *, shared: bool = False) -> torch.Tensor:
    """The one piece of a field as bytes."""
    [[_, count, block, row]] = resolved.pieces(field)
    layout = resolved.layout(field, int(block))
    assert layout is not None
    offset = layout.data_offset + int(row) * layout.row_nbytes
    return as_tensor(resolved.view(int(block), offset, int(count) * layout.row_nbytes, shared=shared))


def copy(resolved: Resolved, field: int, dtype: Any) -> npt.NDArray[Any]:
    """All rows of a field, flat, gathered into fresh memory."""
    pieces = resolved.pieces(field)
    nbytes = int(resolved.row_nbytes(field, pieces).sum())
    result = np.empty(nbytes, np.uint8)
    assert resolved.copy_rows(field, pieces, result.ctypes.data, nbytes) == nbytes
    return result.view(dtype)


def get(store: Store, partition: str, field: str, dtype: Any, **rows: Any) -> npt.NDArray[Any]:
    resolved = store.resolve(partition, fields=[field], **rows)
    assert resolved.partition_found
    assert len(resolved.gone) == 0
    return copy(resolved, 0, dtype)


def stat(store: Store, name: str) -> int:
    return store.stats()[name]


def write_over_free_space(store: Store, value: int = 0x66) -> None:
    """Puts `value` into every page that is free, in partition `junk`: what is wrongly free does not survive it."""
    nbytes = 4 * MIB
    while nbytes >= 4096:
        try:
            put(store, "junk", {"a": np.full((1, nbytes), value, np.uint8)}, timeout_s=0.0)
        except StorageFullError:
            nbytes //= 2


def until(condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.005)


def fork(work: Callable[[], None]) -> int:
    """Pid of a child that does `work` and ends, with status 1 and a traceback when that raised."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def exit_status(pid: int, timeout_s: float = 60.0) -> int:
    """Of a child: its exit code, or minus the signal that ended it. A child that does not end is killed and fails."""
    deadline = time.monotonic() + timeout_s
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise AssertionError(f"child {pid} did not end within {timeout_s} s")
        time.sleep(0.002)


PRELUDE = """
import os, sys, threading, time
import numpy as np
from transferqueue import _native
from tests.unit.native import native_session as ns
session = ns.NativeSession(sys.argv[1])
store = session.attach()
"""


def start(session: NativeSession, code: str, pause: str = "") -> subprocess.Popen[str]:
    """Another process, attached to the session as `store`. `pause` arms a point in it: `name=action[:after]`."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    if pause:
        environment["TRANSFERQUEUE_PAUSE"] = pause
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + code, session.name],
        env=environment,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def run(session: NativeSession, code: str, pause: str = "") -> tuple[int, str, str]:
    """Exit status, output and errors of such a process."""
    process = start(session, code, pause)
    output, errors = process.communicate(timeout=60)
    return process.returncode, output, errors


__all__ = [
    "MIB",
    "NativeSession",
    "_native",
    "as_tensor",
    "copy",
    "exit_status",
    "fill",
    "fork",
    "get",
    "layouts",
    "new_session",
    "put",
    "run",
    "start",
    "stat",
    "until",
    "view",
    "write_over_free_space",
]
