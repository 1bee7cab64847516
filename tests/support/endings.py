"""Ends of interpreters, many for one import of torch: each program runs in a forked process as ``__main__`` and then
ends as any program does, through the whole of Python's shutdown.

    results = run_to_the_end({"name": "x = 1"})     # name -> End(status, output, errors)
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.nursery import ROOT

_PROGRAM_TIMEOUT_S = 40
_FOLDER_VARIABLE = "ENDINGS_FOLDER"


@dataclass(frozen=True)
class End:
    """status: exit status, minus the signal that killed it; None: it had to be killed."""

    status: int | None
    output: str
    errors: str


def run_to_the_end(programs: Mapping[str, str]) -> dict[str, End]:
    """One after the other, in one process each."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TRANSFERQUEUE_")}
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.endings"],
        input=json.dumps(dict(programs)),
        env={**environment, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=_PROGRAM_TIMEOUT_S * len(programs),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {name: End(**end) for name, end in json.loads(done.stdout).items()}


def _become(program: str, folder: str) -> None:
    """In the child: from here on this process is that program, and the rest of this module is nothing to it."""
    for number, name in ((1, "output"), (2, "errors")):
        file = os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CREAT)
        os.dup2(file, number)
        os.close(file)
    own = sys.modules["__main__"].__dict__
    exec(compile(program, "program", "exec"), own)


def _wait(pid: int) -> int | None:
    until_s = time.monotonic() + _PROGRAM_TIMEOUT_S
    while time.monotonic() < until_s:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def _serve(programs: Mapping[str, str]) -> dict[str, Any] | str:
    """The ends of all programs; in a child the program that it is."""
    ends: dict[str, Any] = {}
    folder = tempfile.mkdtemp()
    for name, program in programs.items():
        own = f"{folder}/{len(ends)}"
        os.mkdir(own)
        pid = os.fork()
        if pid == 0:
            os.environ[_FOLDER_VARIABLE] = own
            return program
        status = _wait(pid)
        output, errors = (Path(own, part).read_text() for part in ("output", "errors"))
        ends[name] = {"status": status, "output": output, "errors": errors}
    shutil.rmtree(folder)
    return ends


if __name__ == "__main__":
    import tensordict  # noqa: F401
    import torch  # noqa: F401

    import transferqueue.client
    import transferqueue.session  # noqa: F401  (before the first fork, so that no child imports them)

    answer = _serve(json.loads(sys.stdin.read()))
    if isinstance(answer, dict):
        print(json.dumps(answer))
    else:
        _become(answer, os.environ.pop(_FOLDER_VARIABLE))
