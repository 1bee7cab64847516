"""The package imports without Ray, and what needs Ray says so on use."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
sys.modules["ray"] = None  # importing it raises ImportError, as if it were not installed
from transferqueue.controller import (
    ClassWithInitArgs, LocalWorkerGroup, RayClassWithInitArgs, RayResourcePool, RayWorkerGroup
)
from transferqueue.workers import Dispatch, Worker, register

class Mine(Worker):
    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def method(self):
        return self.rank

with LocalWorkerGroup(ClassWithInitArgs(Mine), 2) as group:
    assert group.method() == [0, 1]
assert Mine().method() == 0
pool = RayResourcePool([2], use_gpu=False)
for use in (lambda: RayWorkerGroup(pool, RayClassWithInitArgs(Mine)), pool.get_placement_groups):
    try:
        use()
    except ImportError as error:
        print(error)
"""


@pytest.mark.timeout(60)
def test_import_and_use_without_ray() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "RayWorkerGroup needs Ray: pip install 'transferqueue-shm[ray]'",
        "RayResourcePool needs Ray: pip install 'transferqueue-shm[ray]'",
    ]


@pytest.mark.timeout(60)
def test_importing_loads_no_ray() -> None:
    program = "import sys, transferqueue.controller, transferqueue.workers; print('ray' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "False\n", done.stderr
