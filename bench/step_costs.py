"""What one put, get, fetch and piece of metadata costs, over numbers of rows and fields: the points that `scale_model`
fits its constants to. No claim of its own.
"""

from __future__ import annotations

import pickle
import statistics
import sys
import time
from typing import Any

import torch
from tensordict import TensorDict

import transferqueue as tq
from bench.ours import PARTITION, SYSTEM, session
from bench.report import main
from bench.timing import Measured

ROWS = (1, 8, 64, 512)
FIELDS = (1, 4, 20)
ROW_NBYTES = 64  # a field of a row: little enough to leave the copying out
SINGLE_ROWS = 2000
FETCH_ROWS = (10_000, 100_000)


def batch_of(rows: int, fields: int) -> TensorDict:
    columns = {f"field_{index:02d}": torch.zeros(rows, ROW_NBYTES // 4) for index in range(fields)}
    return TensorDict(columns, batch_size=[rows])


def locked_us(client: Any) -> tuple[float, int]:
    """(microseconds that this process held the write lock so far, how often)."""
    holds = client._store.write_lock_holds()
    return sum(nanoseconds * count for nanoseconds, count in holds) / 1e3, sum(count for _, count in holds)


def step_costs(rows: int, rounds: int) -> list[Measured]:
    """Medians; of fetches and splits the fastest; under the write lock the mean of the faster half (not preempted)."""
    measured = Measured("step_costs", SYSTEM)
    facts = measured.facts
    with session() as _:
        client = tq.get_client()
        for n_rows in ROWS:
            for n_fields in FIELDS:
                batch = batch_of(n_rows, n_fields)
                puts, locks, gets = [], [], []
                for _round in range(rounds * 6):
                    held = locked_us(client)[0]
                    began = time.perf_counter()
                    meta = client.put(batch, partition_id=PARTITION)
                    puts.append(time.perf_counter() - began)
                    locks.append(locked_us(client)[0] - held)
                    began = time.perf_counter()
                    got = client.get_data(meta)
                    gets.append(time.perf_counter() - began)
                    del got
                    client.clear_samples(meta)
                point = f"r{n_rows}_f{n_fields}"
                facts[f"step_put_us_{point}"] = statistics.median(puts) * 1e6
                facts[f"step_get_us_{point}"] = statistics.median(gets) * 1e6
                facts[f"step_lock_us_{point}"] = statistics.fmean(sorted(locks)[: len(locks) // 2])
        _index_bytes(client, facts)
        _metadata(client, facts, rounds)
        _fetch(client, facts, rounds)
    return [measured]


def _index_bytes(client: Any, facts: dict[str, Any]) -> None:
    """Bytes of the index a row: by single-row puts of 20 fields, and by puts of 512 rows of 4 fields."""
    for name, batch, times in (("single_f20", batch_of(1, 20), SINGLE_ROWS), ("r512_f4", batch_of(512, 4), 16)):
        before = client._store.stats()["index_used_bytes"]
        for _ in range(times):
            client.put(batch, partition_id=PARTITION)
        more = client._store.stats()["index_used_bytes"] - before
        facts[f"step_index_bytes_per_row_{name}"] = more / (times * int(batch.batch_size[0]))
        client.clear_partition(PARTITION)


def _metadata(client: Any, facts: dict[str, Any], rounds: int) -> None:
    meta = client.put(batch_of(32768, 4), partition_id=PARTITION)
    order = torch.randperm(32768, generator=torch.Generator().manual_seed(0))
    for count in (128, 8192):
        scattered = meta.select_samples(order[:count].tolist())
        facts[f"step_metadata_bytes_scattered_{count}"] = len(pickle.dumps(scattered, protocol=5))
    for count, parts in ((8192, 64), (32768, 1024)):
        whole = meta.select_samples(order[:count].tolist())
        taken = []
        for _ in range(rounds):
            began = time.perf_counter()
            tq.BatchMeta.concat(whole.chunk(parts))
            taken.append(time.perf_counter() - began)
        facts[f"step_split_join_us_r{count}_p{parts}"] = min(taken) * 1e6
    client.clear_partition(PARTITION)


def _fetch(client: Any, facts: dict[str, Any], rounds: int) -> None:
    """A fetch of 512 rows for a task, out of so many that are ready."""
    for count in FETCH_ROWS:
        client.put(batch_of(count, 1), partition_id=PARTITION)
        taken = []
        for number in range(rounds):
            began = time.perf_counter()
            client.get_meta(["field_00"], 512, PARTITION, task_name=f"task-{number % 2}")
            taken.append(time.perf_counter() - began)
        facts[f"step_fetch_us_{count}"] = min(taken) * 1e6
        client.clear_partition(PARTITION)


if __name__ == "__main__":
    sys.exit(main({"step_costs": step_costs}))
