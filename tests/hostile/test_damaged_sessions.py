"""A live session whose files are damaged: whoever attaches and uses it ends in typed errors or right answers.

The process that made the session is stopped meanwhile: it has the files mapped, and what is damaged under an open
mapping is not what this is about (docs/reliability.md, section 7, says what is and what is not defended). Not damaged
here: the words of held locks, which cost their timeout, and the marks of how much of a file is backed.
"""

from __future__ import annotations

import os
import random
import select
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch
from tensordict import NonTensorStack, TensorDict

import transferqueue as tq
from tests.support.sessions import Forked
from transferqueue.storage.names import SessionPaths, new_session_name

pytestmark = pytest.mark.timeout(300)

SOAK_ROUNDS = 4000
HEADER = range(0, 64)
CONTROL = (HEADER, range(64, 104), range(128, 136), range(192, 200), range(12288, 12800), range(274432, 274944))
TABLE = (HEADER, range(128, 256))
PAYLOAD = (HEADER, range(128, 384))
LEASES = (HEADER, range(64, 132), range(4096, 4160))

# What an undamaged session may answer, too, when its tables say so.
ANSWERS = (
    tq.CorruptSegmentError,
    tq.LayoutMismatchError,
    tq.SessionNotFoundError,
    tq.StorageFullError,
    tq.KeyNotFoundError,
    tq.PartitionNotFoundError,
    tq.FieldNotReadyError,
    tq.StaleMetadataError,
    tq.PickleNotAllowedError,
)


def host(connection: Connection) -> None:
    """Makes a session, is stopped while it is damaged and restored, and finds it as it was."""
    name = connection.recv()
    options = {"storage.size": "8MiB", "storage.index_size": "4MiB"}
    with tq.init(session=name, **options):
        view = tq.get_client()
        batch = TensorDict({"x": torch.arange(80_000).view(2, -1), "s": NonTensorStack("u", "v")}, [2])
        tq.kv_batch_put(["a", "b"], "p", batch, [{"n": 1}, {"n": 2}])
        held = view.kv_batch_get("a", "p")["x"]
        connection.send("made")
        connection.recv()
        assert held.tolist() == [list(range(40_000))]
        assert tq.kv_list("p")["p"] == {"a": {"n": 1}, "b": {"n": 2}}
        assert tq.kv_batch_get(["a", "b"], "p")["x"].flatten().tolist() == list(range(80_000))
    connection.send("whole")


def probe(name: str, *, bytes_are_right: bool) -> None:
    """Attaches and uses a session. Raises for anything but typed errors and right answers."""
    try:
        session = tq.attach(name)
    except ANSWERS:
        return
    client = session.client

    def get() -> None:
        batch = client.kv_batch_get(["a", "b"], "p")
        if bytes_are_right:
            assert batch["x"].flatten().tolist() == list(range(80_000))
            assert batch["s"] == ["u", "v"]

    def put() -> None:
        client.kv_put("mine", "probe", {"x": torch.arange(20_000)}, timeout=0)
        got = client.kv_batch_get("mine", "probe")["x"]
        assert not bytes_are_right or got.flatten().tolist() == list(range(20_000))

    calls: list[Callable[[], object]] = [
        get,
        put,
        lambda: client.kv_list("p"),
        lambda: client.stats(),
        lambda: session.leases(),
        lambda: client.clear_partition("probe"),
        lambda: client.kv_clear(["b"], "p"),
        lambda: session.attachment.store.reap(),
    ]
    for call in calls:
        try:
            call()
        except ANSWERS:
            continue
    with suppress(ANSWERS):
        session.close()


class Damaged:
    """The files of a session, as they were and as they are."""

    def __init__(self, name: str) -> None:
        paths = SessionPaths.of(name)
        self.name = name
        folder = Path(paths.directory)
        segments = [Path("/dev/shm" + paths.segment(ending)) for ending in (".ctl", ".tbl", ".dat")]
        self.control, self.table, self.payload = segments
        self.index = folder / "index" / "data.mdb"
        self.locks = folder / "index" / "lock.mdb"
        self.leases = sorted((folder / "leases").glob("*.lease"))
        self.small = [folder / "session.json", folder / "origin.json"]
        self._files = {
            path: path.read_bytes() for path in (*segments, self.index, self.locks, *self.leases, *self.small)
        }

    def restore(self) -> None:
        """In place: the stopped process has them open."""
        for path, content in self._files.items():
            if path.stat().st_size != len(content):
                os.truncate(path, len(content))
            end = len(content.rstrip(b"\0"))
            with path.open("r+b", buffering=0) as file:
                file.write(content[:end])
        for path in self.leases[0].parent.iterdir():  # of probes that were killed: there are none
            assert path in self._files, path

    def flip(self, path: Path, at: int, value: int) -> None:
        with path.open("r+b", buffering=0) as file:
            file.seek(at)
            file.write(bytes([value]))

    def cut(self, path: Path, nbytes: int) -> None:
        os.truncate(path, nbytes)

    def size(self, path: Path) -> int:
        return len(self._files[path])

    def used(self, path: Path) -> int:
        return len(self._files[path].rstrip(b"\0"))


@contextmanager
def damaged() -> Iterator[Damaged]:
    maker = Forked(host)
    name = new_session_name()
    try:
        maker.say(name)
        assert maker.hear() == "made"
        os.kill(maker.pid, signal.SIGSTOP)
        time.sleep(0.05)
        files = Damaged(name)
        try:
            yield files
        finally:
            files.restore()
            os.kill(maker.pid, signal.SIGCONT)
        maker.say()
        assert maker.hear() == "whole"
        assert maker.join() == 0
    finally:
        maker.kill()


def check(files: Damaged, what: str, *, bytes_are_right: bool = True) -> None:
    """One probe in a process of its own."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            torch.set_num_threads(1)
            probe(files.name, bytes_are_right=bytes_are_right)
            code = 0
        except BaseException as error:
            print(f"{what}: {error!r}", flush=True)
        os._exit(code)
    descriptor = os.pidfd_open(pid)
    try:
        if not select.select([descriptor], [], [], 100)[0]:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            pytest.fail(f"{what}: the process hangs")
    finally:
        os.close(descriptor)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, what
    files.restore()


def of_segments(files: Damaged, source: random.Random) -> None:
    path, ranges = source.choice(
        [(files.control, CONTROL), (files.table, TABLE), (files.payload, PAYLOAD), (files.leases[0], LEASES)]
    )
    at, value = source.choice(source.choice(ranges)), source.choice((0, 1, 0x7F, 0x80, 0xFF, source.randrange(256)))
    files.flip(path, at, value)
    check(files, f"{path.name} byte {at} = {value}")


def of_index(files: Damaged, source: random.Random) -> None:
    path = source.choice([files.index] * 7 + [files.locks])
    limit = files.used(path) if path == files.index else 192
    spots = []
    for _ in range(source.choice((1, 1, 4))):
        page = source.randrange(0, limit, 4096)
        near = source.choice((range(0, 64), range(0, 4096), range(3840, 4096)))
        at = min(page + source.choice(near), limit - 1)
        if path == files.locks and (8 <= at < 12 or 64 <= at < 68):
            continue  # the words of LMDB's mutexes: one that looks held is waited for
        spots.append((at, source.choice((0, 0xFF, source.randrange(256)))))
        files.flip(path, *spots[-1])
    check(files, f"{path.name} {spots}", bytes_are_right=False)


def of_sizes(files: Damaged, source: random.Random) -> None:
    path = source.choice(
        [files.control, files.table, files.payload, files.index, files.locks, files.leases[0], *files.small]
    )
    nbytes = source.choice((0, 1, 63, 64, 4095, 4096, files.size(path) // 2, files.size(path) - 1))
    files.cut(path, min(nbytes, files.size(path)))
    check(files, f"{path.name} cut to {nbytes}", bytes_are_right=False)


KINDS = {"segments": of_segments, "index": of_index, "sizes": of_sizes}


@pytest.mark.parametrize("kind", KINDS)
def test_typed_errors_or_right_answers(kind: str) -> None:
    source = random.Random(kind)
    with damaged() as files:
        check(files, "nothing")
        for _ in range(15):
            KINDS[kind](files, source)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_typed_errors_or_right_answers_many_times(kind: str) -> None:
    source = random.Random()
    with damaged() as files:
        for _ in range(SOAK_ROUNDS):
            KINDS[kind](files, source)
