"""Claim 2: get <= 0.03x memcpy for W's tensor fields, <= 0.1x with the strings; flat in rows; 32 fields <= 2x of 4.

The gets follow one another with nothing between them; the memcpys of the unit are taken afterwards, because each
empties the caches. What a get costs right after one is reported as `cold_caches_ratio`. Not timed: put, dropping the
last batch.
"""

from __future__ import annotations

import statistics
import sys
from typing import Any

import torch
from tensordict import TensorDict

import transferqueue as tq
from bench.consumer import Consumer
from bench.ours import PARTITION, SYSTEM, readers, session, settle
from bench.report import main
from bench.timing import Measured, MemcpyUnit
from bench.workload import payload_nbytes, workload_w

TENSOR_FIELDS = ["input_ids", "attention_mask", "position_ids", "responses", "old_log_probs", "prompts"]
ROWS = (64, 512, 4096)
WARM_UP_GETS = 3


def _gets(reader: Consumer, meta: Any, count: int, fields: list[str] | None = None) -> list[float]:
    seconds: list[float] = reader.call("get_many", meta, count + WARM_UP_GETS, fields)[WARM_UP_GETS:]
    return seconds


def get_alone(rows: int, rounds: int) -> list[Measured]:
    """W by its metadata: `get_alone` for W itself, `get_alone_N_rows` for the other sizes."""
    found, tensors_s = [], {}
    with session("6GiB") as opened, readers(opened.name) as (reader,):
        client = tq.get_client()
        for count in ROWS:
            batch = workload_w(count)
            name = "get_alone" if count == rows else f"get_alone_{count}_rows"
            measured = Measured(name, SYSTEM, payload_nbytes(batch))
            meta = client.put(batch, partition_id=PARTITION)
            measured.facts["huge_bytes"] = settle(client)
            tensors_s[count] = statistics.median(_gets(reader, meta, rounds * 5, TENSOR_FIELDS))
            measured.get_s = _gets(reader, meta, rounds * 5)
            unit = MemcpyUnit(measured.nbytes)
            cold = []
            for _ in range(rounds):
                measured.memcpy_s.append(unit.seconds())
                cold.append(reader.call("get", meta))
            memcpy_s = statistics.median(measured.memcpy_s)
            measured.facts["tensor_fields_ms"] = tensors_s[count] * 1e3
            measured.facts["tensor_fields_ratio"] = tensors_s[count] / memcpy_s
            measured.facts["all_fields_ratio"] = statistics.median(measured.get_s) / memcpy_s
            measured.facts["cold_caches_ratio"] = statistics.median(cold) / memcpy_s
            reader.call("drop")
            client.clear_partition(PARTITION)
            found.append(measured)
    for measured in found:
        if measured.claim == "get_alone":
            measured.facts["time_512_to_64_rows"] = tensors_s[512] / tensors_s[64]
            measured.facts["time_4096_to_512_rows"] = tensors_s[4096] / tensors_s[512]
            measured.facts["time_32_to_4_fields"] = _fields_ratio(rounds)
    return found


def _fields_ratio(rounds: int) -> float:
    """Median get of 32 dense fields of 1 MiB over that of 4, taken in turns."""
    seconds: dict[int, list[float]] = {4: [], 32: []}
    with session("1GiB") as opened, readers(opened.name) as (reader,):
        metas = {
            count: tq.get_client().put(
                TensorDict(
                    {f"field_{index:02d}": torch.zeros(512, 256, dtype=torch.int64) for index in range(count)}, [512]
                ),
                partition_id=f"fields_{count}",
            )
            for count in seconds
        }
        settle(tq.get_client())
        for _ in range(rounds):
            for count, found in seconds.items():
                found.extend(_gets(reader, metas[count], 5))
    return statistics.median(seconds[32]) / statistics.median(seconds[4])


if __name__ == "__main__":
    sys.exit(main({"get_alone": get_alone}))
