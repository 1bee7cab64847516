"""Ray's object store: default, and with its zero-copy switch (RAY_ENABLE_ZERO_COPY_TORCH_TENSORS=1, set by the caller).

put: `ray.put` in the driver. get: `ray.get` of the reference in an actor, timed there. "dict" passes the fields as a
plain dict of tensors (jagged as values and offsets, strings as a list), Ray's best case; "TensorDict" passes the batch.
Not timed: the actor call that carries the reference. Workers run at niceness 0 (the environment of the runner).
"""

from __future__ import annotations

import os
import pickle
import sys
import time
from typing import Any

import ray

from bench.report import main
from bench.timing import Measured, MemcpyUnit
from bench.workload import assert_equal_batches, payload_nbytes, small_batch, workload_w

SWITCH = "RAY_ENABLE_ZERO_COPY_TORCH_TENSORS"
WARM_UP_ROUNDS = 8


def _start() -> str:
    switched = os.environ.get(SWITCH) == "1"
    ray.init(
        num_cpus=8,
        include_dashboard=False,
        object_store_memory=400
        << 20,  # small, so that the warm-up rounds have touched all of it and puts reuse warm pages
        _system_config={"preallocate_plasma_memory": True},  # its pages are warm before the first put
        log_to_driver=False,
        runtime_env={"env_vars": {SWITCH: os.environ.get(SWITCH, "0"), "OMP_NUM_THREADS": "1"}},
    )
    return "Ray, zero-copy switch" if switched else "Ray default"


@ray.remote(num_cpus=1)
class Reader:
    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._value: Any = None

    def get(self, box: list[Any]) -> float:
        self._value = None  # dropping the last view is not part of the next get
        began = time.perf_counter()
        self._value = ray.get(box[0])
        return time.perf_counter() - began

    def receive(self, batch: Any) -> float:
        """The batch as an argument; answers with the time at which the method saw it."""
        self._value = batch
        return time.time()

    def check(self) -> int:
        if isinstance(self._value, dict):
            expected = _as_dict(workload_w(self._rows))
            for name, value in expected.items():
                same = (
                    value == self._value[name] if isinstance(value, list) else bool((value == self._value[name]).all())
                )
                if not same:
                    raise ValueError(f"field {name} differs")
        else:
            assert_equal_batches(self._value, workload_w(self._rows))
        return self._rows


def _as_dict(batch: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in batch.keys():
        value = batch.get(name)
        if getattr(value, "is_nested", False):
            found[f"{name}.values"], found[f"{name}.offsets"] = value.values(), value.offsets()
        elif hasattr(value, "tolist") and not hasattr(value, "dtype"):
            found[name] = value.tolist()
        else:
            found[name] = batch[name] if name == "uid" else value
    found["uid"] = list(batch["uid"])
    return found


def put_get(rows: int, rounds: int) -> list[Measured]:
    system = _start()
    found = []
    try:
        batch = workload_w(rows)
        unit = MemcpyUnit(payload_nbytes(batch))
        for form, value in (("TensorDict", batch), ("dict", _as_dict(batch))):
            reader = Reader.remote(rows)
            measured = Measured("put_get_w", f"{system}, {form}", unit.nbytes)
            for round_index in range(rounds + WARM_UP_ROUNDS):
                began = time.perf_counter()
                reference = ray.put(value)
                put_s = time.perf_counter() - began
                get_s = ray.get(reader.get.remote([reference]))
                if round_index >= WARM_UP_ROUNDS:
                    measured.put_s.append(put_s)
                    measured.get_s.append(get_s)
                    measured.memcpy_s.append(unit.seconds())
                del reference
            measured.checked_rows = ray.get(reader.check.remote())
            ray.kill(reader)
            found.append(measured)
    finally:
        ray.shutdown()
    return found


def small(rows: int, rounds: int) -> list[Measured]:
    """8 rows x 16 floats as an argument of an actor call, and the empty call beside it."""
    system = _start()
    try:
        reader = Reader.remote(rows)
        batch = small_batch()
        ray.get(reader.receive.remote(batch))
        carried, empty = Measured("small", f"{system}, call with the batch"), Measured("small", f"{system}, empty call")
        for _ in range(max(rounds * 20, 100)):
            for measured, argument in ((carried, batch), (empty, None)):
                began = time.perf_counter()
                ray.get(reader.receive.remote(argument))
                measured.get_s.append(time.perf_counter() - began)
        return [carried, empty]
    finally:
        ray.shutdown()


def fan_out(rows: int, rounds: int) -> list[Measured]:
    """One batch to 4 actors, all rows each: from sending the reference to the last actor holding the TensorDict."""
    system = _start()
    try:
        readers = [Reader.remote(rows) for _ in range(4)]
        batch = workload_w(rows)
        measured = Measured("fan_out_4", system, payload_nbytes(batch))
        unit = MemcpyUnit(measured.nbytes)
        for round_index in range(rounds + WARM_UP_ROUNDS):
            began = time.perf_counter()
            reference = ray.put(batch)
            put_s = time.perf_counter() - began
            sent = time.time()
            seen = max(ray.get([reader.receive.remote(reference) for reader in readers]))
            if round_index >= WARM_UP_ROUNDS:
                measured.put_s.append(put_s)
                measured.get_s.append(seen - sent)
                measured.memcpy_s.append(unit.seconds())
            del reference
        measured.facts["argument_bytes"] = len(pickle.dumps(batch, protocol=5))
        return [measured]
    finally:
        ray.shutdown()


if __name__ == "__main__":
    sys.exit(main({"put_get": put_get, "small": small, "fan_out": fan_out}))
