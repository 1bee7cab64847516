"""Sessions and processes for tests: started, watched, ended by pid, and nothing left in shared memory."""

from __future__ import annotations

import io
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from multiprocessing.connection import Connection
from typing import Any

import torch

import transferqueue as tq
from transferqueue.cli import main
from transferqueue.storage.names import new_session_name

SIZE = "64MiB"


def left_behind(name: str) -> list[str]:
    """Whatever in shared memory has the session's name in it."""
    return [entry for entry in os.listdir("/dev/shm") if name in entry]


def wait_until_gone(name: str) -> None:
    """For the removal of a dead session: of several that clean up at once, as tests beside this one do whenever they
    start a session, one removes it, and the others do not wait for that."""
    wait_for(lambda: not left_behind(name), what=f"the removal of session {name}")


def janitors(name: str) -> list[int]:
    """Pids of the janitor processes of a session."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if b"transferqueue.storage.janitor" in words and name.encode() in words:
            found.append(int(entry))
    return found


def wait_for(condition: Callable[[], object], timeout_s: float = 30.0, what: str = "it") -> None:
    """Until the condition holds; fails the test after `timeout_s`."""
    until_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < until_s, f"{what} did not happen within {timeout_s} s"
        time.sleep(0.005)


@contextmanager
def embedded(name: str | None = None, **overrides: object) -> Iterator[tq.Session]:
    """A session created by this process; ended, and checked to leave nothing."""
    name = name or new_session_name()
    session = tq.init(session=name, **{"storage.size": SIZE, **overrides})
    try:
        yield session
    finally:
        tq.close()
        session.close()
    assert left_behind(name) == []


@contextmanager
def served(name: str | None = None) -> Iterator[str]:
    """A `tq serve` in a forked process, see `Forked`; ended by SIGTERM, and checked to leave nothing."""
    name = name or new_session_name()
    service = forked_service()
    service.say(name)
    try:
        assert service.hear().startswith(f"serving session {name}")
        yield name
    finally:
        os.kill(service.pid, signal.SIGTERM)
        status = service.join()
    assert status == 0
    assert left_behind(name) == []


def forked_service(*arguments: str) -> Forked:
    """`tq serve` of the session whose name it is told. It says its first line then, whatever that is."""

    def serve(connection: Connection) -> None:
        class Said(io.StringIO):
            def write(self, text: str) -> int:
                if not self.getvalue():
                    connection.send(text)
                return super().write(text)

        with redirect_stdout(Said()) as said:
            status = main(["serve", "--session", connection.recv(), "--size", SIZE, *arguments])
        assert status == 0, said.getvalue()

    return Forked(serve)


def start_service(name: str, *arguments: str) -> subprocess.Popen[str]:
    """`tq serve` as a program of its own, ready."""
    process = subprocess.Popen(
        [sys.executable, "-m", "transferqueue.cli", "serve", "--session", name, "--size", SIZE, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    said = ""
    while line := process.stdout.readline():  # what is logged comes between
        said += line
        if line.startswith(f"serving session {name}"):
            return process
    raise AssertionError(f"tq serve did not start: {said}{stop(process)}")


def stop(process: subprocess.Popen[str], number: int = signal.SIGTERM) -> str:
    """Ends a process that a test started; returns what it printed."""
    if process.poll() is None:
        process.send_signal(number)
    try:
        return process.communicate(timeout=30)[0] or ""
    except subprocess.TimeoutExpired:
        process.kill()
        return process.communicate()[0] or ""


def run_python(code: str, *arguments: str, **environment: str) -> str:
    """Runs a script in a fresh process; returns its standard output, fails the test with its error output."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout


class Forked:
    """A forked child that talks over a pipe: `action(connection)`. Fork before this process has a session, and the
    child has none either. (A fresh interpreter spends seconds importing torch.)"""

    def __init__(self, action: Callable[[Connection], object]) -> None:
        self._ours, theirs = multiprocessing.Pipe()
        self.exitcode: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            self._ours.close()
            os._exit(_outcome(lambda: action(theirs)))
        theirs.close()

    def say(self, message: object = None) -> None:
        """Sends the child a message."""
        self._ours.send(message)

    def hear(self, timeout_s: float = 60.0) -> Any:
        """The child's next message."""
        assert self._ours.poll(timeout_s), "the child says nothing"
        return self._ours.recv()

    def join(self) -> int:
        """Waits for the child's end; its exit status, minus the signal that killed it."""
        if self.exitcode is None:
            self.exitcode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            self._ours.close()
        return self.exitcode

    def kill(self) -> None:
        """SIGKILL."""
        if self.exitcode is None:
            os.kill(self.pid, signal.SIGKILL)
            self.join()


def in_child(action: Callable[[], object]) -> int:
    """Runs `action` in a forked child; its exit status: 0, 1 when it raised, minus the signal that killed it."""
    pid = os.fork()
    if pid == 0:
        os._exit(_outcome(action))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _outcome(action: Callable[[], object]) -> int:
    try:
        # A parallel region of libgomp hangs in a child whose parent had one.
        torch.set_num_threads(1)
        action()
        return 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        return 1
