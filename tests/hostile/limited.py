"""What processes do under resource limits, and in namespaces of their own."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import torch
from tensordict import TensorDict

import transferqueue as tq
from tests.support.sessions import left_behind
from transferqueue.storage.names import new_session_name

MIB = 1 << 20
SMALL = {"storage.size": 16 * MIB, "storage.index_size": 2 * MIB}
_CLONE_NEWNS, _CLONE_NEWUSER, _CLONE_NEWPID, _CLONE_NEWNET = 0x20000, 0x10000000, 0x20000000, 0x40000000
_MS_REC, _MS_PRIVATE, _MS_BIND, _MS_REMOUNT, _MS_RDONLY = 0x4000, 1 << 18, 0x1000, 0x20, 0x1
WIDTH = 40_000


def rows(count: int, value: float) -> TensorDict:
    return TensorDict({"x": torch.full((count, WIDTH), value)}, [count])


@contextmanager
def limited(name: str, value: int) -> Iterator[None]:
    """With one of this process's soft limits lowered."""
    which = getattr(resource, name)
    before = resource.getrlimit(which)
    resource.setrlimit(which, (value, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(which, before)


def refused(call: Callable[[], object]) -> tuple[str, str | None, int | None] | None:
    """Class, limit and errno of the error with which the system refused it; None when it was done."""
    try:
        call()
    except tq.SystemRefusedError as error:
        return type(error).__name__, error.limit, error.errno
    return None


def descriptor_limit(spare: int) -> int:
    """The lowest value of RLIMIT_NOFILE that leaves this process so many descriptors."""
    listed = os.open("/proc/self/fd", os.O_RDONLY)
    taken = {int(name) for name in os.listdir(listed)} - {listed}
    os.close(listed)
    value = free = 0
    while free < spare or value <= 2:
        free += value not in taken
        value += 1
    return value


def mapped_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def make_and_join(pipe: Connection, other: str, limit: str, values: list[int]) -> None:
    """For each value of the limit: makes a session, and joins `other`. What was refused, and what was left of it."""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # as in programs that are no Python
    with tq.attach(other):
        pass  # what Python and the allocator take at the first time
    for value in values:
        own = new_session_name()
        found = []
        for join in (lambda name=own: tq.init(session=name, **SMALL).close(), lambda: tq.attach(other).close()):
            allowed = {
                "RLIMIT_NOFILE": lambda given=value: descriptor_limit(given),
                "RLIMIT_AS": lambda given=value: mapped_bytes() + given,
            }.get(limit, lambda given=value: given)()
            with limited(limit, allowed):
                found.append(refused(join))
            session = tq.attach(other)
            assert session.client.get_partition_list() == ["p"]
            session.close()
        pipe.send((value, *found, left_behind(own), [e for e in os.listdir("/dev/shm") if f"-{os.getpid()}-" in e]))
    pipe.send(None)


def write_under_a_file_size(pipe: Connection, name: str, value: int) -> None:
    """Puts, claims and forks where no file may grow beyond `value` bytes, with what SIGXFSZ does in C programs."""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    client = tq.attach(name).client
    client.put(rows(1, 0.0), partition_id="before")
    with limited("RLIMIT_FSIZE", value):
        for number in range(30):
            pipe.send((number, refused(lambda given=number: client.put(rows(1, given), partition_id=f"q{given}"))))
        pid = os.fork()
        if pid == 0:
            os._exit(3 if refused(lambda: client.put(rows(1, -1.0), partition_id="child")) else 0)
        pipe.send(("child", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))
    assert signal.SIGXFSZ not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    assert signal.SIGXFSZ not in signal.sigpending()
    pipe.send(("after", refused(lambda: client.put(rows(1, 5.0), partition_id="after"))))


def read_and_write_in_little_space(pipe: Connection, meta: tq.BatchMeta, name: str, spare: int) -> None:
    client = tq.attach(name).client
    held: list[torch.Tensor] = []

    def read() -> None:
        held.append(client.get_data(meta)["x"])
        held[-1].add_(1.0)

    with limited("RLIMIT_AS", mapped_bytes() + spare):
        answers = [refused(read) for _ in range(6)]
        put = refused(lambda: client.put(TensorDict({"y": torch.zeros(4)}, [4]), partition_id="little"))
    pipe.send((answers, put, [bool((view == 2.0).all()) for view in held], client.stats().leased_bytes > 0))
    held.clear()
    pipe.send(bool((client.get_data(meta)["x"] == 1.0).all()))


def work_without_locked_memory(pipe: Connection, name: str) -> None:
    with limited("RLIMIT_MEMLOCK", 0):
        client = tq.attach(name).client
        meta = client.put(rows(4, 3.0), partition_id="m")
        pipe.send([bool((client.get_data(meta, mode=mode)["x"] == 3.0).all()) for mode in ("cow", "shared", "copy")])


# -- namespaces --------------------------------------------------------------------------------------------------------


def enter_namespaces(kind: str) -> bool:
    """Leaves the caller's namespaces; False where that is not allowed. ``pid`` is that of the children."""
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    flags = {"user": 0, "network": _CLONE_NEWNET, "pid": _CLONE_NEWPID}.get(kind, _CLONE_NEWNS)
    if libc.unshare(_CLONE_NEWUSER | flags) != 0:
        return False
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    if flags != _CLONE_NEWNS:
        return True
    if libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None) != 0:
        return False
    if kind == "shared memory":
        return int(libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, None)) == 0
    assert kind == "read-only"
    # What was mounted with these flags must keep them.
    kept = os.statvfs("/dev/shm").f_flag & (os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC)
    bound = libc.mount(b"/dev/shm", b"/dev/shm", None, _MS_BIND, None)
    return (
        bound == 0 and int(libc.mount(None, b"/dev/shm", None, _MS_BIND | _MS_REMOUNT | _MS_RDONLY | kept, None)) == 0
    )


def visit_from(pipe: Connection, name: str, kind: str) -> None:
    """Attaches, reads and writes from other namespaces, cleans up there, and says how it went."""
    if not enter_namespaces(kind):
        pipe.send(None)
        return
    if kind != "pid":
        pipe.send(_visit(name))
        return
    pid = os.fork()
    if pid == 0:
        pipe.send(_visit(name))
        os._exit(0)
    os.waitpid(pid, 0)


def _visit(name: str) -> list[object]:
    try:
        session = tq.attach(name)
    except tq.TransferQueueError as error:
        found: list[object] = [type(error).__name__]
    else:
        client = session.client
        meta = client.get_meta(["x"], 0, "p", mode="force_fetch")
        right = bool((client.get_data(meta)["x"] == 1.0).all())
        client.put(TensorDict({"y": torch.arange(meta.size)}, [meta.size]), metadata=meta)
        found = ["attached", right]
        session.close()
    try:
        # By its name: an end of the creator's session of that name would be seen by the creator.
        with tq.init(session=f"{name}-own", **SMALL) as own:
            put = own.client.put(rows(2, 2.0), partition_id="own")
            found.append(bool((own.client.get_data(put)["x"] == 2.0).all()))
    except tq.TransferQueueError as error:
        found.append(type(error).__name__)
    return found
