"""Claim: small puts cost little. 8 rows x 16 floats between processes; single rows from 1, 2 and 4 processes; rows of
20 fields from 200 tasks of one event loop.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from typing import Any

import torch
from tensordict import TensorDict

import transferqueue as tq
from bench.crew import Member, crew, sleep_until
from bench.ours import PARTITION, SYSTEM, readers, session
from bench.report import main
from bench.timing import Measured
from bench.workload import payload_nbytes, small_batch

PROCESSES = (1, 2, 4)
WINDOW_S = 0.7
AGENTS = 200
ROWS_PER_AGENT = 10


def small(rows: int, rounds: int) -> Measured:
    """put in this process, get in another; the clear in between is not timed."""
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
    summary = measured.summary()
    measured.facts |= {"small_put_ms": summary["put_ms"], "small_get_ms": summary["get_ms"]}
    return measured


class RowWriter(Member):
    """Puts single rows into a partition of its own."""

    def __init__(self, session: str, number: int) -> None:
        super().__init__(session)
        self._partition = f"rows-{number}"
        self._row = TensorDict({"x": torch.zeros(1, 16)}, batch_size=[1])
        self.client.put(self._row, partition_id=self._partition)

    def write(self, begin_s: float, window_s: float) -> tuple[int, float]:
        """Puts that returned within the window, and CPU seconds used."""
        put, row, partition, count = self.client.put, self._row, self._partition, 0
        sleep_until(begin_s)
        end_s = begin_s + window_s
        before_s = time.process_time()
        while time.monotonic() < end_s:
            put(row, partition_id=partition)
            count += 1
        return count, time.process_time() - before_s

    def clear(self) -> None:
        self.client.clear_partition(self._partition)
        self.client.put(self._row, partition_id=self._partition)


def single_row_puts(rows: int, rounds: int) -> Measured:
    """Windows with 1, 2 and 4 processes take turns, so that a machine that slows down slows all of them."""
    measured = Measured("single_row_puts", SYSTEM)
    rates: dict[int, list[float]] = {count: [] for count in PROCESSES}
    cpu_us: dict[int, list[float]] = {count: [] for count in PROCESSES}
    cores: dict[int, list[float]] = {count: [] for count in PROCESSES}
    with session() as opened, crew(max(PROCESSES), RowWriter, opened.name) as writers:
        for round_index in range(rounds + 1):
            for count in PROCESSES:
                done = writers.together("write", WINDOW_S, of=count)
                if round_index:
                    puts, used_s = sum(puts for puts, _ in done), sum(used_s for _, used_s in done)
                    rates[count].append(puts / WINDOW_S)
                    cpu_us[count].append(used_s / puts * 1e6)
                    cores[count].append(used_s / WINDOW_S)
                for writer in writers.members:
                    writer.call("clear")
    for count in PROCESSES:
        name = f"single_row_puts_per_second_{count}_process" + ("es" if count > 1 else "")
        measured.facts[name] = statistics.median(rates[count])
        # What contention costs, and what the machine had left for us: what other programs took shows here.
        measured.facts[f"single_row_put_cpu_us_{count}"] = statistics.median(cpu_us[count])
        measured.facts[f"single_row_puts_cores_used_{count}"] = statistics.median(cores[count])
        if count > 1:
            ratios = [more / one for more, one in zip(rates[count], rates[1], strict=True)]
            measured.facts[f"single_row_puts_{count}_over_1_process"] = statistics.median(ratios)
    return measured


def agent_row(number: int) -> dict[str, Any]:
    """20 fields of one finished turn: 10 token sequences, 6 numbers, 4 texts."""
    row: dict[str, Any] = {f"tokens_{index}": torch.arange(32 * (index + 1)) + number for index in range(10)}
    row |= {f"score_{index}": torch.tensor(float(number + index)) for index in range(6)}
    return row | {f"text_{index}": f"answer {number} of turn {index}" for index in range(4)}


async def _agents(store: Any, agents: int, rows_each: int, first: int) -> float:
    rows = [agent_row(number) for number in range(agents)]

    async def agent(number: int) -> None:
        for turn in range(rows_each):
            key = f"agent-{number}-{first + turn}"
            await store.async_kv_put(key, PARTITION, rows[number], {"turn": turn})

    began = time.perf_counter()
    await asyncio.gather(*(agent(number) for number in range(agents)))
    return time.perf_counter() - began


def agent_loop(rows: int, rounds: int) -> Measured:
    """Rows of 20 fields by key and with a tag, from 200 asyncio tasks that wait for each of their puts."""
    measured = Measured("agent_loop", SYSTEM)
    count = AGENTS * ROWS_PER_AGENT
    with session():
        client = tq.get_client()
        for round_index in range(rounds + 1):
            taken_s = asyncio.run(_agents(client, AGENTS, ROWS_PER_AGENT, round_index * ROWS_PER_AGENT))
            if round_index:
                measured.put_s.append(taken_s / count)
            client.clear_partition(PARTITION)
    measured.facts["agent_loop_rows_per_second"] = 1 / statistics.median(measured.put_s)
    return measured


if __name__ == "__main__":
    sys.exit(main({"small": small, "single_row_puts": single_row_puts, "agent_loop": agent_loop}))
