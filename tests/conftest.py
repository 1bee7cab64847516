"""What every test module is held to: it leaves no process and nothing in /dev/shm."""

from __future__ import annotations

import gc
import json
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

# Before torch is imported: a parallel region of libgomp hangs in a forked child whose parent had one.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Ctrl-C is among what is tested, and a shell that starts the tests in the background has SIGINT ignored in all of them.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_SHM = Path("/dev/shm")
# Of sessions and of the tests' own segments; the native tests, which may run at the same time, name theirs otherwise.
_PREFIXES = (f"tq-{os.getuid()}-", "native-")


def pytest_collection_finish() -> None:
    """Many tests collect garbage, each time a tenth of a second for what torch and the test modules have imported."""
    gc.collect()
    gc.freeze()


def _is_below(pid: int, ancestor: int) -> bool:
    """Whether the living process `pid` was started, at any remove, by `ancestor`."""
    while pid > 1:
        if pid == ancestor:
            return True
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except FileNotFoundError:
            return False
    return False


def _of_another_run(name: str) -> bool:
    """A session whose creator is alive and not ours: another test run on this machine, or a user. Or whose name a
    process made that is: tests kill creators, and others stay in the session."""
    if named_by := re.match(rf"(?:tq|native)-{os.getuid()}-p(\d+)-", name):
        pid = int(named_by[1])
        if Path(f"/proc/{pid}").exists() and not _is_below(pid, os.getpid()):
            return True
    for folder in (name, name.rpartition(".")[0]):  # the session's directory, or one of its segments
        try:
            creator = int(json.loads((_SHM / folder / "session.json").read_text())["creator_pid"])
        except (OSError, ValueError, KeyError):
            continue
        return Path(f"/proc/{creator}").exists() and not _is_below(creator, os.getpid())
    return False


def _session_files() -> set[str]:
    return {entry.name for entry in os.scandir(_SHM) if entry.name.startswith(_PREFIXES)}


def _children() -> dict[int, str]:
    """Children of this process by pid, zombies left out, with their command lines."""
    found: dict[int, str] = {}
    for task in Path("/proc/self/task").iterdir():
        try:
            pids = (task / "children").read_text().split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # a thread that ended meanwhile
        for pid in pids:
            try:
                state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
                command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except FileNotFoundError:
                continue
            if state != "Z":
                found[int(pid)] = command
    return found


def _is_foreign(command: str) -> bool:
    """Ray's own processes, what its workers fork from and Python's helper servers: they outlive a module by design and
    end with the test run."""
    lasting = ("ray::", "/ray/", "gcs_server", "raylet", "resource_tracker", "forkserver", "tests.support.warm_workers")
    return any(word in command for word in lasting)


@pytest.fixture(scope="module", autouse=True)
def leaves_nothing_behind() -> Iterator[None]:
    files_before, children_before = _session_files(), set(_children())
    yield
    deadline = time.monotonic() + 10.0  # a child that was told to end may take a moment to be gone
    while True:
        # What others had before stays theirs when they die meanwhile.
        files = {name for name in _session_files() - files_before if not _of_another_run(name)}
        children = {
            pid: command
            for pid, command in _children().items()
            if pid not in children_before and not _is_foreign(command)
        }
        if not files and not children:
            return
        if time.monotonic() > deadline:
            pytest.fail(f"left behind: files {sorted(files)}, processes {children}")
        time.sleep(0.05)


@pytest.fixture(autouse=True)
def no_session_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session exported by the shell that runs the tests must not be joined by them."""
    monkeypatch.delenv("TRANSFERQUEUE_SESSION", raising=False)
