"""Claim 3: alloc -> fill -> commit -> get costs <= 0.1x memcpy beyond the producer's own writing (<= 0.4x where tensors
of the allocation are alive at commit); the same for a worker method that computes into what `alloc` hands out.

"The producer's own writing" is the same filling of warm private memory, taken in the same round. Dense fields of W. Not
timed: the pipe that carries the metadata, clearing between rounds.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from tensordict import TensorDict

import transferqueue as tq
from bench.ours import PARTITION, SYSTEM, readers, session, settle
from bench.report import main
from bench.timing import Measured, MemcpyUnit
from bench.workload import workload_w
from transferqueue.workers import tqbridge

WARM_UP_ROUNDS = 3
Fields = dict[str, tuple[tuple[int, ...], torch.dtype]]


def _dense(rows: int) -> dict[str, torch.Tensor]:
    return {name: value for name, value in workload_w(rows, strings=False).items() if name != "prompts"}


def _fill(target: Any, source: dict[str, torch.Tensor]) -> None:
    for name, value in source.items():
        target[name].copy_(value)


def _seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


class Method:
    """What a rank runs: outputs on the rows of its batch, computed where `alloc` says."""

    @tqbridge()
    def compute(self, batch: Any, rows: list[Any], source: dict[str, torch.Tensor], fields: Fields) -> list[Any]:
        """`rows` holds the metadata of `batch`; in a list the bridge leaves it alone, there and on the way back."""
        allocation = tq.get_client().alloc(fields, partition_id=PARTITION, metadata=rows[0])
        _fill(allocation.data, source)
        return [allocation.commit()]


def written_in_place(rows: int, rounds: int) -> list[Measured]:
    """`dead`: no tensor of the allocation is alive at commit; `alive`: one is kept over it; `worker`: by a bridged
    method."""
    source = _dense(rows)
    fields: Fields = {name: (tuple(value.shape[1:]), value.dtype) for name, value in source.items()}
    private = {name: torch.empty_like(value) for name, value in source.items()}
    nbytes = sum(value.numel() * value.element_size() for value in source.values())
    numbers = TensorDict({"n": torch.arange(rows)}, [rows])
    unit = MemcpyUnit(nbytes)

    def produce(kind: str) -> tuple[Any, Any]:
        if kind == "worker":
            return Method().compute(inputs, [inputs], source, fields)[0], None
        allocation = tq.get_client().alloc(fields, partition_id=PARTITION, batch_size=rows)
        _fill(allocation.data, source)
        kept = allocation.data["input_ids"] if kind == "alive" else None
        return allocation.commit(), kept

    found = []
    with session() as opened, readers(opened.name) as (reader,):
        client = tq.get_client()
        for kind in ("dead", "alive", "worker"):
            measured = Measured(f"written_in_place_{kind}", SYSTEM, nbytes)
            beyond, own = [], []
            for round_index in range(rounds + WARM_UP_ROUNDS):
                inputs = client.put(numbers, partition_id=PARTITION) if kind == "worker" else None
                own_s = _seconds(lambda: _fill(private, source))
                began = time.perf_counter()
                meta, kept = produce(kind)
                put_s = time.perf_counter() - began
                get_s = reader.call("get", meta)
                del kept
                if round_index == 0:
                    _check(client.get_data(meta), source)
                if round_index >= WARM_UP_ROUNDS:
                    measured.put_s.append(put_s)
                    measured.get_s.append(get_s)
                    measured.memcpy_s.append(unit.seconds())
                    beyond.append(put_s + get_s - own_s)
                    own.append(own_s)
                reader.call("drop")
                client.clear_partition(PARTITION)
                if round_index == 0:
                    measured.facts["huge_bytes"] = settle(client)
            memcpy_s = statistics.median(measured.memcpy_s)
            measured.checked_rows = rows
            measured.facts["own_writing_ratio"] = statistics.median(own) / memcpy_s
            measured.facts["beyond_ratio"] = statistics.median(beyond) / memcpy_s
            found.append(measured)
    return found


def _check(batch: Any, source: dict[str, torch.Tensor]) -> None:
    for name, value in source.items():
        if not torch.equal(batch[name], value):
            raise ValueError(f"field {name} differs")


if __name__ == "__main__":
    sys.exit(main({"written_in_place": written_in_place}))
