"""Ray's object store with the same batch: `ray.put` in the driver, `ray.get` of the reference in an actor, timed there.

Run as a program of its own (`python -m transferqueue.microbench.ray_peer`), because Ray reads its zero-copy switch when
it starts; nothing of the data plane imports this module, and it imports nothing of the data plane.

"dict" passes the fields as a plain dict of tensors (jagged as values and offsets, strings as a list), Ray's best case;
"TensorDict" passes the batch. Not timed: the actor call that carries the reference.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray
import torch

from transferqueue.microbench.timing import Measured, MemcpyUnit
from transferqueue.microbench.workload import assert_equal_batches, payload_nbytes, small_batch, touch_pages, workload_w

SWITCH = "RAY_ENABLE_ZERO_COPY_TORCH_TENSORS"
WARM_UP_ROUNDS = 6
_LEAST_STORE_NBYTES = 200 << 20
_COPIES_IN_STORE = 4


@contextmanager
def started(nbytes: int = 0) -> Iterator[str]:
    """Ray with an object store for a few objects of `nbytes`; yields the name of this form of the system.

    The store is small and preallocated, so that the warm-up rounds have touched all of it and puts reuse warm pages.
    """
    switched = os.environ.get(SWITCH) == "1"
    ray.init(
        address="local",  # not a cluster that somebody else started on this machine
        num_cpus=8,
        include_dashboard=False,
        object_store_memory=max(_LEAST_STORE_NBYTES, _COPIES_IN_STORE * nbytes),
        _system_config={"preallocate_plasma_memory": True},
        log_to_driver=False,
        runtime_env={"env_vars": {SWITCH: os.environ.get(SWITCH, "0"), "OMP_NUM_THREADS": "1"}},
    )
    try:
        yield "Ray, zero-copy switch" if switched else "Ray default"
    finally:
        ray.shutdown()


class _Reader:
    def __init__(self) -> None:
        self._value: Any = None

    def get(self, box: list[Any]) -> float:
        """Seconds of `ray.get`; dropping the last value is not part of it."""
        self._value = None
        began = time.perf_counter()
        self._value = ray.get(box[0])
        return time.perf_counter() - began

    def touch(self) -> float:
        """Seconds to touch every page of the value once."""
        began = time.perf_counter()
        touch_pages(self._value)
        return time.perf_counter() - began

    def receive(self, batch: Any) -> float:
        """The batch as an argument; the wall-clock time at which the method saw it."""
        self._value = batch
        return time.time()

    def check(self, rows: int) -> int:
        """Compares every row with W; raises ValueError naming the first field that differs."""
        expected = workload_w(rows)
        if not isinstance(self._value, dict):
            assert_equal_batches(self._value, expected)
            return rows
        for name, value in as_dict(expected).items():
            theirs = self._value[name]
            if not (value == theirs if isinstance(value, list) else bool((value == theirs).all())):
                raise ValueError(f"field {name} differs")
        return rows


Reader: Any = ray.remote(num_cpus=1)(_Reader)


def as_dict(batch: Any) -> dict[str, Any]:
    """W as a plain dict: dense tensors, jagged values and offsets, strings in a list."""
    found: dict[str, Any] = {}
    for name in batch.keys():
        value = batch.get(name)
        if getattr(value, "is_nested", False):
            found[f"{name}.values"], found[f"{name}.offsets"] = value.values(), value.offsets()
        else:
            found[name] = value if isinstance(value, torch.Tensor) else list(batch[name])
    return found


def put_get(rows: int, rounds: int, claim: str = "put_get_w", warm_up_rounds: int = WARM_UP_ROUNDS) -> list[Measured]:
    """W of `rows` rows, as a TensorDict and as a dict."""
    batch = workload_w(rows)
    found = []
    with started(payload_nbytes(batch)) as system:
        unit = MemcpyUnit(payload_nbytes(batch))
        for form, value in (("TensorDict", batch), ("dict", as_dict(batch))):
            reader = Reader.remote()
            measured = Measured(claim, f"{system}, {form}", unit.nbytes)
            touches: list[Any] = []
            for round_index in range(rounds + warm_up_rounds):
                began = time.perf_counter()
                reference = ray.put(value)
                put_s = time.perf_counter() - began
                get_s: Any = ray.get(reader.get.remote([reference]))
                touch_s = ray.get(reader.touch.remote())
                if round_index >= warm_up_rounds:
                    measured.put_s.append(put_s)
                    measured.get_s.append(get_s)
                    measured.memcpy_s.append(unit.seconds())
                    touches.append(touch_s)
                del reference
            measured.checked_rows = ray.get(reader.check.remote(rows))
            measured.add_touches(touches)
            ray.kill(reader)
            found.append(measured)
    return found


def small(rounds: int) -> list[Measured]:
    """8 rows x 16 floats as an argument of an actor call, and the empty call beside it."""
    with started() as system:
        reader = Reader.remote()
        batch = small_batch()
        ray.get(reader.receive.remote(batch))
        carried, empty = (Measured("small_8x16", f"{system}, {what}") for what in ("call with the batch", "empty call"))
        for _ in range(rounds * 20):
            for measured, argument in ((carried, batch), (empty, None)):
                began = time.perf_counter()
                ray.get(reader.receive.remote(argument))
                measured.get_s.append(time.perf_counter() - began)
    return [carried, empty]


def main() -> int:
    """Prints one line of JSON: the measurements."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    arguments = parser.parse_args()
    found = put_get(arguments.rows, arguments.rounds) + small(arguments.rounds)
    print("RESULT " + json.dumps([item.as_json() for item in found]), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
