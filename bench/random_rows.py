"""Claim: 64 random rows of 512, all fields, in <= 3.5 ms and at most 1.2x a numpy take. A batch of 512 rows that came
by 512 puts is read by one gather at memcpy speed; after `coalesce` the reads are views.
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict

import transferqueue as tq
from bench.consumer import Consumer
from bench.ours import PARTITION, SYSTEM, Reader, session
from bench.report import main
from bench.timing import Measured, MemcpyUnit
from bench.workload import payload_nbytes, workload_w

CHOSEN = 64
SCATTERED_ROWS, SCATTERED_FIELDS = 512, 20
LENGTH_MIN, LENGTH_MAX = 100, 2048


class TakingReader(Reader):
    """Reads from the store, and takes the same rows out of warm private memory: in one process, in turns."""

    def __init__(self, session: str, rows: int) -> None:
        super().__init__(session)
        self._columns: list[Any] = []
        for name, value in workload_w(rows).items():
            if isinstance(value, torch.Tensor) and value.is_nested:
                self._columns.append((value.values().numpy(), value.offsets().numpy()))
            elif isinstance(value, torch.Tensor):
                self._columns.append(value.numpy())
            else:
                self._columns.append(np.array(value.tolist() if hasattr(value, "tolist") else [value], dtype=object))
            del name
        self._taken: list[Any] = []

    def take(self, chosen: list[int]) -> float:
        """Seconds of numpy's take of the rows, jagged ones joined by numpy's concatenate."""
        self._taken = []
        began = time.perf_counter()
        for column in self._columns:
            if isinstance(column, tuple):
                values, offsets = column
                self._taken.append(np.concatenate([values[offsets[row] : offsets[row + 1]] for row in chosen]))
            else:
                self._taken.append(column.take(chosen, axis=0))
        return time.perf_counter() - began


def random_64(rows: int, rounds: int) -> Measured:
    """The rows are another choice in every round; both sides get the same ones."""
    batch = workload_w(rows)
    measured = Measured("random_64_of_512", SYSTEM, payload_nbytes(batch) * CHOSEN // rows)
    takes = []
    numbers = torch.Generator().manual_seed(1)
    with session() as opened:
        reader = Consumer(TakingReader, opened.name, rows)
        try:
            meta = tq.get_client().put(batch, partition_id=PARTITION)
            unit = MemcpyUnit(measured.nbytes)
            for round_index in range(rounds * 4 + 3):
                chosen = torch.randperm(rows, generator=numbers)[:CHOSEN].tolist()
                get_s = reader.call("get", meta.select_samples(chosen))
                take_s = reader.call("take", chosen)
                if round_index > 2:
                    measured.get_s.append(get_s)
                    takes.append(take_s)
                    measured.memcpy_s.append(unit.seconds())
        finally:
            reader.close()
    measured.facts |= {
        "random_64_get_ms": statistics.median(measured.get_s) * 1e3,
        "random_64_numpy_take_ms": statistics.median(takes) * 1e3,
        "random_64_over_numpy_take": statistics.median(
            got / taken for got, taken in zip(measured.get_s, takes, strict=True)
        ),
    }
    return measured


def scattered_row(number: int) -> TensorDict:
    """One row of 20 jagged int64 fields, 100 to 2,048 tokens each."""
    numbers = torch.Generator().manual_seed(number)
    fields = {}
    for index in range(SCATTERED_FIELDS):
        length = int(torch.randint(LENGTH_MIN, LENGTH_MAX + 1, (1,), generator=numbers))
        values = torch.arange(length, dtype=torch.int64) + number
        fields[f"field_{index:02d}"] = torch.nested.nested_tensor_from_jagged(values, torch.tensor([0, length]))
    return TensorDict(fields, batch_size=[1])


def scattered(rows: int, rounds: int) -> Measured:
    """512 single-row puts read as one sampled batch in random order: gathered, then coalesced, then viewed.

    `scattered_coalesce_pays_after_reads`: so many reads of the batch by one process cost what coalescing it and then
    reading views cost.
    """
    measured = Measured("scattered_512", SYSTEM)
    gathers, moves, views, copies = [], [], [], []
    order = torch.randperm(SCATTERED_ROWS, generator=torch.Generator().manual_seed(2)).tolist()
    singles = [scattered_row(number) for number in range(SCATTERED_ROWS)]
    measured.nbytes = sum(payload_nbytes(row) for row in singles)
    with session() as opened:
        client = tq.get_client()
        unit = MemcpyUnit(measured.nbytes)
        reader = Consumer(Reader, opened.name)
        try:
            for round_index in range(rounds + 1):
                put = [client.put(row, partition_id=PARTITION) for row in singles]
                meta = tq.BatchMeta.concat(put).select_samples(order)
                gathered = [reader.call("get", meta) for _ in range(2)][
                    1:
                ]  # two: what is read again unasked is not this
                copied = [unit.seconds() for _ in range(3)]
                began = time.perf_counter()
                client.coalesce(meta)
                moved_s = time.perf_counter() - began
                viewed = [reader.call("get", meta) for _ in range(3)][1:]
                reader.call("drop")
                client.clear_partition(PARTITION)
                if round_index:
                    gathers += gathered
                    moves.append(moved_s)
                    views += viewed
                    copies += copied
        finally:
            reader.close()
    measured.get_s, measured.memcpy_s = gathers, copies
    gather_s, move_s, view_s = (statistics.median(values) for values in (gathers, moves, views))
    measured.facts |= {
        "scattered_gather_over_memcpy": gather_s / statistics.median(copies),
        "scattered_gather_ms": gather_s * 1e3,
        "scattered_coalesce_ms": move_s * 1e3,
        "scattered_coalesced_get_ms": view_s * 1e3,
        "scattered_coalesced_get_over_memcpy": view_s / statistics.median(copies),
        "scattered_coalesce_pays_after_reads": move_s / max(gather_s - view_s, 1e-9),
    }
    return measured


if __name__ == "__main__":
    sys.exit(main({"random_64": random_64, "scattered": scattered}))
