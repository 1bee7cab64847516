"""Workers of Ray, forked from a process that has torch and tensordict imported: nearly 3 of the 4 seconds of processor
time that each would need to start.

    with warm_workers():
        ray.init(...)      # and whatever starts its nodes here

Ray and transferqueue are imported by each worker itself, so that they see its environment. The process that Ray started
stays beside it (`warm_start/sitecustomize.py`); where the two ends of that connection part, the worker is killed.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import json
import os
import runpy
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).parents[2]
HOOK = Path(__file__).parent / "warm_start"


@contextlib.contextmanager
def warm_workers() -> Iterator[None]:
    """Nodes of Ray that are started inside, by this process or by its children, have such workers."""
    changes = {"TQ_TEST_WARM_WORKERS": _address(), "PYTHONPATH": str(HOOK)}
    before = {name: os.environ.get(name) for name in changes}
    if before["PYTHONPATH"]:
        changes["PYTHONPATH"] += os.pathsep + before["PYTHONPATH"]
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@functools.cache
def _address() -> str:
    """Where to ask. The process lasts as long as this one."""
    folder = tempfile.mkdtemp(prefix="tq-warm-", dir="/tmp")  # the names of sockets may not be long
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.warm_workers", f"{folder}/socket"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        start_new_session=True,  # Ctrl-C is for the tests
    )

    here = os.getpid()

    def end() -> None:
        if os.getpid() == here:  # not a child that exits
            process.kill()
            process.communicate()
            shutil.rmtree(folder)

    atexit.register(end)
    assert process.stdout is not None
    assert process.stdout.readline(), "the process that workers are forked from did not start"
    return f"{folder}/socket"


def _receive(connection: socket.socket) -> tuple[list[int], list[Any]]:
    head, fds, _, _ = socket.recv_fds(connection, 8, 3)
    what = b""
    while len(what) < int.from_bytes(head, "little"):
        what += connection.recv(1 << 16)
    return fds, json.loads(what)


def _become(fds: list[int], argv: list[str], path: list[str], environment: dict[str, str], folder: str) -> NoReturn:
    """As if `argv` had been executed, but for what is imported."""
    os.setsid()
    for target, fd in enumerate(fds):
        os.dup2(fd, target)
    os.closerange(3, 1 << 16)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    script = next(position for position, name in enumerate(argv) if name.endswith("/default_worker.py"))
    sys.argv = argv[script:]
    sys.path[:] = [os.path.dirname(argv[script]), *path]
    status = 1
    try:
        runpy.run_path(argv[script], run_name="__main__")
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _serve(address: str) -> None:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(address)
    listener.listen(256)
    print("ready", flush=True)
    waiting = selectors.DefaultSelector()
    waiting.register(0, selectors.EVENT_READ, "end")
    waiting.register(listener, selectors.EVENT_READ, "asked")
    while True:
        for key, _ in waiting.select():
            if key.data == "end":
                return
            if key.data == "asked":
                connection = listener.accept()[0]
                fds, what = _receive(connection)
                pid = os.fork()
                if pid == 0:
                    _become(fds, *what)
                for fd in fds:
                    os.close(fd)
                ended = os.pidfd_open(pid)
                waiting.register(ended, selectors.EVENT_READ, (pid, connection))
                waiting.register(connection, selectors.EVENT_READ, pid)
            elif isinstance(key.data, tuple):
                pid, connection = key.data
                status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                waiting.unregister(key.fd)
                os.close(key.fd)
                with contextlib.suppress(KeyError):
                    waiting.unregister(connection)
                with contextlib.suppress(OSError):
                    connection.sendall(bytes([status & 0xFF]))
                connection.close()
            else:  # whom Ray started was killed
                with contextlib.suppress(ProcessLookupError):
                    os.kill(key.data, signal.SIGKILL)
                waiting.unregister(key.fd)


if __name__ == "__main__":
    import tensordict  # noqa: F401
    import torch

    torch.nested.nested_tensor([torch.zeros(1)], layout=torch.jagged)  # imports what the first one of a process does
    gc.freeze()  # what is imported is looked at by no collection, so that its pages stay shared
    _serve(sys.argv[1])
