"""Claims: 8 rows x 16 floats put / get <= 0.15 / 0.10 ms; single-row puts >= 5,000/s; 10,000 keys; 64 random rows."""

from __future__ import annotations

import statistics
import sys
import time

import torch
from tensordict import TensorDict

import transferqueue as tq
from bench.ours import PARTITION, SYSTEM, readers, session
from bench.report import main
from bench.timing import Measured, MemcpyUnit
from bench.workload import payload_nbytes, small_batch, workload_w


def small(rows: int, rounds: int) -> Measured:
    measured = Measured("small", SYSTEM, payload_nbytes(small_batch()))
    with session() as opened, readers(opened.name) as (reader,):
        client = tq.get_client()
        batch = small_batch()
        for round_index in range(rounds * 50):
            began = time.perf_counter()
            meta = client.put(batch, partition_id=PARTITION)
            put_s = time.perf_counter() - began
            get_s = reader.call("get", meta)
            if round_index > 10:
                measured.put_s.append(put_s)
                measured.get_s.append(get_s)
            client.clear_samples(meta)
    return measured


def single_row_puts(rows: int, rounds: int) -> Measured:
    measured = Measured("single_row_puts", SYSTEM)
    with session():
        client = tq.get_client()
        row = TensorDict({"x": torch.zeros(1, 16)}, batch_size=[1])
        for _ in range(rounds * 300):
            began = time.perf_counter()
            client.put(row, partition_id=PARTITION)
            measured.put_s.append(time.perf_counter() - began)
    measured.facts["puts_per_second"] = len(measured.put_s) / sum(measured.put_s)
    return measured


def keys_10k(rows: int, rounds: int) -> list[Measured]:
    count = 10_000
    names = [f"key-{index:08d}" for index in range(count)]
    batch = TensorDict({"x": torch.zeros(count, 4)}, batch_size=[count])
    with session() as opened, readers(opened.name):
        calls = {
            "put": lambda: tq.kv_batch_put(keys=names, partition_id=PARTITION, fields=batch, tags=[{}] * count),
            "get": lambda: tq.kv_batch_get(keys=names, partition_id=PARTITION),
            "list": lambda: tq.kv_list(partition_id=PARTITION),
            "metadata": lambda: tq.get_client().kv_retrieve_meta(keys=names, partition_id=PARTITION),
        }
        found = {name: Measured(f"keys_10k_{name}", SYSTEM) for name in calls}
        for _ in range(rounds):
            for name, call in calls.items():
                began = time.perf_counter()
                call()
                found[name].get_s.append(time.perf_counter() - began)
    return list(found.values())


def random_rows(rows: int, rounds: int) -> list[Measured]:
    """64 random rows of 512, all fields of W, against numpy's take of the same rows from warm private memory."""
    batch = workload_w(rows)
    chosen = torch.randperm(rows, generator=torch.Generator().manual_seed(1))[:64].tolist()
    dense = {name: value.numpy() for name, value in workload_w(rows, strings=False).items() if name != "prompts"}
    measured = Measured("random_64_of_512", SYSTEM, payload_nbytes(batch) * 64 // rows)
    takes = []
    with session() as opened, readers(opened.name) as (reader,):
        meta = tq.get_client().put(batch, partition_id=PARTITION).select_samples(chosen)
        unit = MemcpyUnit(measured.nbytes)
        for round_index in range(rounds * 3 + 2):
            get_s = reader.call("get", meta)
            began = time.perf_counter()
            taken = {name: value.take(chosen, axis=0) for name, value in dense.items()}
            take_s = time.perf_counter() - began
            del taken
            if round_index > 1:
                measured.get_s.append(get_s)
                takes.append(take_s)
                measured.memcpy_s.append(unit.seconds())
    measured.facts["numpy_take_ms"] = statistics.median(takes) * 1e3
    return [measured]


if __name__ == "__main__":
    sys.exit(
        main({"small": small, "single_row_puts": single_row_puts, "keys_10k": keys_10k, "random_rows": random_rows})
    )
