"""Ray's object store: default, and with its zero-copy switch (RAY_ENABLE_ZERO_COPY_TORCH_TENSORS=1, set by the caller).

The measurements of the package's own `tq bench`, with 8 times the rows and four actors beside them. put: `ray.put` in
the driver. get: `ray.get` of the reference in an actor, timed there. Not timed: the actor call that carries the
reference. Workers run at niceness 0 (the environment of the runner).
"""

from __future__ import annotations

import sys
import time

import ray

from bench.report import main
from bench.timing import Measured, MemcpyUnit
from bench.workload import payload_nbytes, workload_w
from transferqueue.microbench import ray_peer


def put_get(rows: int, rounds: int) -> list[Measured]:
    return ray_peer.put_get(rows, rounds)


def put_get_big(rows: int, rounds: int) -> list[Measured]:
    return ray_peer.put_get(rows * 8, max(rounds // 3, 2), "put_get_w_big", warm_up_rounds=3)


def small(rows: int, rounds: int) -> list[Measured]:
    found = ray_peer.small(rounds)
    for measured in found:
        measured.claim = "small"
    return found


def fan_out(rows: int, rounds: int) -> list[Measured]:
    """One batch to 4 actors, all rows each: from sending the reference to the last actor holding the TensorDict."""
    batch = workload_w(rows)
    with ray_peer.started(payload_nbytes(batch)) as system:
        actors = [ray_peer.Reader.remote() for _ in range(4)]
        measured = Measured("fan_out_4", f"{system}, TensorDict", payload_nbytes(batch))
        unit = MemcpyUnit(measured.nbytes)
        for round_index in range(rounds + ray_peer.WARM_UP_ROUNDS):
            began = time.perf_counter()
            reference = ray.put(batch)
            put_s = time.perf_counter() - began
            sent = time.time()
            seen = max(ray.get([actor.receive.remote(reference) for actor in actors]))
            if round_index >= ray_peer.WARM_UP_ROUNDS:
                measured.put_s.append(put_s)
                measured.get_s.append(seen - sent)
                measured.memcpy_s.append(unit.seconds())
            del reference
        return [measured]


if __name__ == "__main__":
    sys.exit(main({"put_get": put_get, "put_get_big": put_get_big, "small": small, "fan_out": fan_out}))
