"""kill -9 of a Ray job: of its driver while its actors restart, and of everything, raylet and janitor included."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.nursery import ROOT
from tests.support.sessions import janitors, left_behind, wait_for
from transferqueue.storage.cleaning import Left, clean
from transferqueue.storage.names import new_session_name

pytest.importorskip("ray")
pytestmark = pytest.mark.timeout(300)
WITHIN_S = 60.0  # what is promised


def start(*arguments: str) -> subprocess.Popen[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("TRANSFERQUEUE_", "RAY_"))}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.crash.ray_jobs", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        # Newer versions of Ray ask who connects for a token, which a cluster of a test has none of.
        env={**environment, "PYTHONPATH": str(ROOT), "RAY_AUTH_MODE": "disabled"},
    )


def line(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout is not None
    return process.stdout.readline().split()


def go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    print(file=process.stdin, flush=True)


def below(ancestor: int) -> list[int]:
    """Every process that `ancestor` started, at any remove."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                parent = int(Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
            children.setdefault(parent, []).append(int(entry))
    found, at = [ancestor], 0
    while at < len(found):
        found += children.get(found[at], [])
        at += 1
    return found[1:]


def runs(pid: int) -> bool:
    """Zombies do not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def kill(pids: list[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


@pytest.fixture
def temporary() -> Iterator[str]:
    """Ray's own files; the names of its sockets may not be long."""
    path = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
    yield path
    shutil.rmtree(path, ignore_errors=True)


def test_what_killed_jobs_leave_is_gone_within_a_minute(temporary: str) -> None:
    with_janitor, without_janitor = new_session_name(), new_session_name()
    cluster = start("cluster", temporary, with_janitor, without_janitor)
    processes = [cluster]
    try:
        address, *names = line(cluster)
        assert names == [with_janitor, without_janitor]
        job = start("job", address)
        processes.append(job)
        # It leaves Ray: its actor is gone, its own session stays, and is removed when it closes it.
        first, of_actor = line(job)
        assert of_actor == first
        go_on(job)
        assert line(job) == ["0"]
        assert left_behind(first)
        go_on(job)
        # Killed while its actor is restarting.
        second, of_actor = line(job)
        assert of_actor == second != first
        assert left_behind(first) == []
        kill([job.pid])
        job.wait()
        wait_for(lambda: not left_behind(second), WITHIN_S, "the end of a job's session")
        wait_for(lambda: not janitors(second), what="the end of its janitor")
        # Everything at once, one of the two janitors included.
        assert Left(f"session {with_janitor}", "in use") in clean().left
        kill(janitors(without_janitor))
        everything = [cluster.pid, *below(cluster.pid)]
        kill(everything)
        cluster.wait()
        wait_for(lambda: not any(map(runs, everything)), what="the end of Ray")
        wait_for(lambda: not left_behind(with_janitor), WITHIN_S, "the end of a cluster's session")
        # An actor that was just being started is no child of what was killed; Ray ends it when it finds itself alone.
        wait_for(lambda: not left_behind(without_janitor) or not clean(), WITHIN_S, "that it can be cleaned")
        wait_for(lambda: not janitors(with_janitor), what="the end of its janitor")
    finally:
        kill([pid for process in processes if process.poll() is None for pid in (*below(process.pid), process.pid)])
        for process in processes:
            process.communicate()
        clean()
