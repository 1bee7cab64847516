"""Two Ray nodes on one machine, talking over loopback: what every system is measured on when a batch changes nodes.

`python -m bench.baselines.ray_two_nodes` measures Ray's own object store: `ray.put` on the head, `ray.get` of the
reference in 1 to 8 actors on the other node, which has not seen the object. Timed in the actors, from the moment at
which all of them are told to begin until the slowest holds the batch; not timed: the call that carries the reference.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray
from ray.cluster_utils import Cluster

from bench.report import main
from bench.timing import Measured, MemcpyUnit
from bench.workload import payload_nbytes, workload_w
from transferqueue.microbench.ray_peer import SWITCH, as_dict

READERS = (1, 2, 4, 8)
WARM_UP_ROUNDS = 3
# Before the first measured round of a system: by then the memory of both nodes has been used, whoever takes it, and
# what runs in the background has run. What the very first round took is told apart.
_FIRST_WARM_UP_ROUNDS = 12
_FIRST_WARM_UP_S = 10.0
THERE = "there"
_STORE_NBYTES = 1 << 30


@contextmanager
def two_nodes(*, environment: dict[str, str] | None = None) -> Iterator[None]:
    """The driver is on the head, ``resources={THERE: ...}`` is the other one."""
    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 16, "object_store_memory": _STORE_NBYTES, "resources": {"here": 100}},
    )
    try:
        cluster.add_node(num_cpus=16, object_store_memory=_STORE_NBYTES, resources={THERE: 100})
        ray.init(
            address=cluster.address,
            log_to_driver=False,
            runtime_env={"env_vars": {"OMP_NUM_THREADS": "1", **(environment or {})}},
        )
        yield
    finally:
        ray.shutdown()
        cluster.shutdown()


def warmed_up_rounds(rounds: int, *, first: bool) -> Iterator[bool]:
    """For each round whether it counts: those that warm up come first, and are more before a system's first ones."""
    until_s = time.monotonic() + (_FIRST_WARM_UP_S if first else 0.0)
    warm = 0
    while warm < (_FIRST_WARM_UP_ROUNDS if first else WARM_UP_ROUNDS) or time.monotonic() < until_s:
        warm += 1
        yield False
    for _ in range(rounds):
        yield True


def start_at() -> float:
    """The wall-clock time at which all readers are to begin: the calls that tell them are over by then."""
    return time.time() + 0.05


def sleep_until(wall_s: float) -> None:
    time.sleep(max(0.0, wall_s - time.time()))


class _Reader:
    def __init__(self) -> None:
        self._value: Any = None

    def start(self) -> None:
        """Its process is there."""

    def get(self, box: list[Any], begin_s: float) -> float:
        """Seconds from `begin_s` until the batch is there."""
        self._value = None
        sleep_until(begin_s)
        self._value = ray.get(box[0])
        return time.time() - begin_s

    def rows(self) -> int:
        value = self._value
        return len(next(iter(value.values()))) if isinstance(value, dict) else int(value.batch_size[0])


def two_node_reads(rows: int, rounds: int) -> list[Measured]:
    """W as a dict of tensors, Ray's best case, and as a TensorDict."""
    switched = os.environ.get(SWITCH) == "1"
    system = "Ray, zero-copy switch" if switched else "Ray default"
    batch = workload_w(rows)
    found = []
    with two_nodes(environment={SWITCH: os.environ.get(SWITCH, "0")}):
        remote: Any = ray.remote(num_cpus=0, resources={THERE: 1})(_Reader)
        readers = [remote.remote() for _ in range(max(READERS))]
        ray.get([reader.start.remote() for reader in readers])
        unit = MemcpyUnit(payload_nbytes(batch))
        for form, value in (("dict", as_dict(batch)), ("TensorDict", batch)):
            for count in READERS:
                measured = Measured(f"two_nodes_{count}", f"{system}, {form}", unit.nbytes)
                for counts in warmed_up_rounds(rounds, first=count == READERS[0]):
                    began = time.perf_counter()
                    reference = ray.put(value)
                    put_s = time.perf_counter() - began
                    begin_s = start_at()
                    seconds = ray.get([reader.get.remote([reference], begin_s) for reader in readers[:count]])
                    measured.facts.setdefault("first_get_ms", 1e3 * max(seconds))
                    if counts:
                        measured.put_s.append(put_s)
                        measured.get_s.append(max(seconds))
                        measured.memcpy_s.append(unit.seconds())
                    del reference
                measured.checked_rows = ray.get(readers[0].rows.remote())
                found.append(measured)
    return found


if __name__ == "__main__":
    sys.exit(main({"two_node_reads": two_node_reads}))
