"""TransferQueue 0.1.11 (its own environment) with its default SimpleStorage; clients in the driver and in actors.

put: `kv_batch_put` in the driver; get: `kv_batch_get` in an actor, timed there.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import ray
import transfer_queue as tq

from bench.report import main
from bench.timing import Measured, MemcpyUnit
from bench.workload import assert_equal_batches, payload_nbytes, small_batch, touch_pages, workload_w

SYSTEM = "TransferQueue 0.1.11"


@ray.remote(num_cpus=0)
class Reader:
    def __init__(self, rows: int) -> None:
        tq.init()
        self._rows = rows
        self._value: Any = None

    def get(self, keys: list[str], fields: list[str] | None = None) -> float:
        self._value = None
        began = time.perf_counter()
        self._value = tq.kv_batch_get(keys=keys, partition_id="bench", select_fields=fields)
        return time.perf_counter() - began

    def get_until(self, keys: list[str]) -> float:
        self.get(keys)
        return time.time()

    def touch(self) -> float:
        began = time.perf_counter()
        touch_pages(self._value)
        return time.perf_counter() - began

    def check(self) -> int:
        assert_equal_batches(self._value, workload_w(self._rows))
        return self._rows


def _start() -> None:
    ray.init("local", num_cpus=16, include_dashboard=False, log_to_driver=False)
    tq.init()


def _stop() -> None:
    tq.close()
    ray.shutdown()


def put_get(rows: int, rounds: int) -> list[Measured]:
    """W, and 8 times the rows in fewer rounds."""
    _start()
    try:
        return [_put_get("put_get_w", rows, rounds), _put_get("put_get_w_big", rows * 8, 2)]
    finally:
        _stop()


def _put_get(claim: str, rows: int, rounds: int) -> Measured:
    batch, keys = workload_w(rows), [f"k{row}" for row in range(rows)]
    measured = Measured(claim, SYSTEM, payload_nbytes(batch))
    unit, touches = MemcpyUnit(measured.nbytes), []
    reader = Reader.remote(rows)
    for round_index in range(rounds + 1):
        began = time.perf_counter()
        tq.kv_batch_put(keys=keys, partition_id="bench", fields=batch)
        put_s = time.perf_counter() - began
        get_s = ray.get(reader.get.remote(keys))
        touch_s = ray.get(reader.touch.remote())
        if round_index:
            measured.put_s.append(put_s)
            measured.get_s.append(get_s)
            measured.memcpy_s.append(unit.seconds())
            touches.append(touch_s)
    measured.add_touches(touches)
    measured.checked_rows = ray.get(reader.check.remote())
    tq.kv_clear(keys=keys, partition_id="bench")
    ray.kill(reader)
    return measured


def small(rows: int, rounds: int) -> Measured:
    _start()
    try:
        measured = Measured("small", SYSTEM)
        batch, keys = small_batch(), [f"k{row}" for row in range(8)]
        reader = Reader.remote(rows)
        for round_index in range(rounds * 4 + 1):
            began = time.perf_counter()
            tq.kv_batch_put(keys=keys, partition_id="bench", fields=batch)
            put_s = time.perf_counter() - began
            get_s = ray.get(reader.get.remote(keys))
            if round_index:
                measured.put_s.append(put_s)
                measured.get_s.append(get_s)
        return measured
    finally:
        _stop()


def keys_10k(rows: int, rounds: int) -> list[Measured]:
    import torch
    from tensordict import TensorDict

    _start()
    try:
        count = 10_000
        names = [f"key-{index:08d}" for index in range(count)]
        batch = TensorDict({"x": torch.zeros(count, 4)}, batch_size=[count])
        calls = {
            "put": lambda: tq.kv_batch_put(keys=names, partition_id="bench", fields=batch, tags=[{}] * count),
            "get": lambda: tq.kv_batch_get(keys=names, partition_id="bench"),
            "list": lambda: tq.kv_list(partition_id="bench"),
            "metadata": lambda: tq.get_client().kv_retrieve_meta(keys=names, partition_id="bench"),
        }
        found = {name: Measured(f"keys_10k_{name}", SYSTEM) for name in calls}
        for _ in range(max(rounds // 2, 2)):
            for name, call in calls.items():
                began = time.perf_counter()
                call()
                found[name].get_s.append(time.perf_counter() - began)
        return list(found.values())
    finally:
        _stop()


def fan_out(rows: int, rounds: int) -> Measured:
    _start()
    try:
        batch, keys = workload_w(rows), [f"k{row}" for row in range(rows)]
        measured = Measured("fan_out_4", SYSTEM, payload_nbytes(batch))
        readers = [Reader.remote(rows) for _ in range(4)]
        for round_index in range(max(rounds // 2, 2) + 1):
            began = time.perf_counter()
            tq.kv_batch_put(keys=keys, partition_id="bench", fields=batch)
            put_s = time.perf_counter() - began
            sent = time.time()
            seen = max(ray.get([reader.get_until.remote(keys) for reader in readers]))
            if round_index:
                measured.put_s.append(put_s)
                measured.get_s.append(seen - sent)
        return measured
    finally:
        _stop()


if __name__ == "__main__":
    sys.exit(main({"put_get": put_get, "small": small, "keys_10k": keys_10k, "fan_out": fan_out}))
