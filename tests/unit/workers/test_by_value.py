"""Worker classes of a main program travel to their ranks by value."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
import ray.cloudpickle
from transferqueue.workers import Dispatch, Worker, alloc_outputs, make_nd_compute_dataproto_dispatch_fn, register

class Mine(Worker):
    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn("dp"))
    def method(self, batch):
        return 1

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    async def later(self, batch):
        return alloc_outputs({}, batch_size=1)

sys.stdout.buffer.write(ray.cloudpickle.dumps(Mine))
"""

RANK = """
import pickle, sys
from tensordict import TensorDict

made = pickle.loads(sys.stdin.buffer.read())
print(made.__module__, made().method(TensorDict({}, [1])))
"""


@pytest.mark.timeout(120)
def test_a_class_of_a_main_program_can_be_sent() -> None:
    pytest.importorskip("ray")
    sent = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=False)
    assert sent.returncode == 0, sent.stderr
    assert len(sent.stdout) < 8_000, "nothing of the data plane travels with it"
    done = subprocess.run([sys.executable, "-c", RANK], input=sent.stdout, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [b"__main__", b"1"]
