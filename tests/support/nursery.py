"""Processes for tests, forked from one that has torch and transferqueue imported: a few milliseconds each, and none of
them knows anything of the test's own session.

    with Nursery() as nursery:
        child = nursery.start(work, session_name, 3)     # runs work(pipe, session_name, 3) in a process of its own
        child.pipe.send("go")
        assert child.wait() == -signal.SIGKILL
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).parents[2]
WAIT_S = 60.0
# work(pipe, *arguments); of a module that can be imported.
Work = Callable[..., object]


class Child:
    """A process of the nursery. `pipe` is connected to the first argument of its work."""

    def __init__(self, nursery: Nursery, pid: int, pipe: Connection) -> None:
        self.pid = pid
        self.pipe = pipe
        self._nursery = nursery
        self._status: int | None = None

    def wait(self, timeout_s: float = WAIT_S) -> int:
        """Exit status: 0, 1 when the work raised (the trace is on stderr), minus the signal that killed it."""
        if self._status is None:
            self._status = self._nursery._ask("wait", self.pid, timeout_s)
            if self._status is None:
                self.kill()
                raise AssertionError(f"process {self.pid} did not end within {timeout_s} s")
            self.pipe.close()
        return self._status

    def receive(self, timeout_s: float = WAIT_S) -> Any:
        """What the work sent next."""
        if not self.pipe.poll(timeout_s):
            self.kill()
            raise AssertionError(f"process {self.pid} said nothing for {timeout_s} s")
        return self.pipe.recv()

    def kill(self, number: int = signal.SIGKILL) -> None:
        """It was not waited for yet, so the pid is its own."""
        if self._status is None:
            os.kill(self.pid, number)


class Nursery:
    """Thread-safe. `close` kills what still runs."""

    def __init__(self) -> None:
        self._control, theirs = Pipe()
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        environment = {key: value for key, value in os.environ.items() if not key.startswith("TRANSFERQUEUE_")}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.nursery", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env={**environment, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        )
        theirs.close()
        self._guard = threading.Lock()

    def start(self, work: Work, *arguments: object) -> Child:
        """Forks a process that calls ``work(pipe, *arguments)`` and ends without any clean-up."""
        ours, theirs = Pipe()
        with self._guard:
            self._control.send(("start", work, arguments))
            send_handle(self._control, theirs.fileno(), self._process.pid)
            theirs.close()
            return Child(self, self._control.recv(), ours)

    def run(self, work: Work, *arguments: object) -> int:
        """Exit status of such a process."""
        return self.start(work, *arguments).wait()

    def close(self) -> None:
        """Idempotent."""
        self._control.close()
        self._process.wait(WAIT_S)

    def _ask(self, what: str, *arguments: object) -> Any:
        with self._guard:
            self._control.send((what, *arguments))
            return self._control.recv()

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()


def run_here(work: Work, *arguments: object) -> None:
    """Ends this process with 0, or with 1 when the work raises; no clean-up of any kind."""
    status = 1
    try:
        work(*arguments)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _wait(pid: int, timeout_s: float) -> int | None:
    until_s = time.monotonic() + timeout_s
    pause_s = 0.0005
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > until_s:
            return None
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, 0.02)


def _serve(control: Connection) -> None:
    running: set[int] = set()
    while True:
        try:
            what, *arguments = control.recv()
        except EOFError:
            break
        if what == "wait":
            status = _wait(*arguments)
            if status is not None:
                running.discard(arguments[0])
            control.send(status)
            continue
        work, given = arguments
        handle = recv_handle(control)
        pid = os.fork()
        if pid == 0:
            control.close()
            run_here(work, Connection(handle), *given)
        os.close(handle)
        running.add(pid)
        control.send(pid)
    for pid in running:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    import tensordict  # noqa: F401
    import torch  # noqa: F401

    import transferqueue.client  # noqa: F401  (before the first fork, so that no child imports it)

    gc.freeze()  # no collection of a child looks at what is imported, so its pages stay shared
    _serve(Connection(int(sys.argv[1])))
