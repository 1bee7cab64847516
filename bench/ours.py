"""Our side of every measurement: a session in this process and readers that attach to it in processes of their own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import transferqueue as tq
from bench.consumer import Consumer
from bench.timing import page_faults
from bench.workload import assert_equal_batches, workload_w

SYSTEM = "transferqueue-shm"
PARTITION = "bench"


class Reader:
    """Attached to the session by name; every get is timed here, in the consumer process."""

    def __init__(self, session: str) -> None:
        tq.init(session=session)
        self._client = tq.get_client()
        self._batch: Any = None

    def get(self, meta: tq.BatchMeta, fields: list[str] | None = None) -> float:
        self._batch = None  # dropping the last views is not part of the next get
        began = time.perf_counter()
        self._batch = self._client.get_data(meta, fields=fields)
        return time.perf_counter() - began

    def get_many(self, meta: tq.BatchMeta, rounds: int) -> list[float]:
        return [self.get(meta) for _ in range(rounds)]

    def get_and_drop(self, meta: tq.BatchMeta) -> float:
        self._batch = None
        began = time.perf_counter()
        self._batch = self._client.get_data(meta)
        self._batch = None
        return time.perf_counter() - began

    def get_until(self, meta: tq.BatchMeta) -> float:
        """Wall-clock time at which the TensorDict was there."""
        self.get(meta)
        return time.time()

    def touch(self) -> tuple[float, int]:
        """Seconds to sum the held batch's bytes page by page, and the minor faults that took."""
        import torch

        faults = page_faults()[0]
        began = time.perf_counter()
        for name in self._batch.keys():
            value = self._batch.get(name)
            if isinstance(value, torch.Tensor):
                flat = (value.values() if value.is_nested else value).reshape(-1).view(torch.uint8)
                int(flat[::4096].sum(dtype=torch.int64))
        return time.perf_counter() - began, page_faults()[0] - faults

    def check(self, rows: int, seed: int) -> int:
        assert_equal_batches(self._batch, workload_w(rows, seed))
        return rows

    def drop(self) -> None:
        self._batch = None

    def pss_bytes(self) -> int:
        return shared_pss_bytes()

    def close(self) -> None:
        self._batch = None
        tq.close()


def shared_pss_bytes() -> int:
    """Proportional share of the shared-memory payload that this process has mapped (smaps of the .dat segment)."""
    total, inside = 0, False
    with open("/proc/self/smaps", encoding="ascii", errors="replace") as smaps:
        for line in smaps:
            if "-" in line.split(" ", 1)[0]:
                inside = "/dev/shm/tq-" in line and ".dat" in line
            elif inside and line.startswith("Pss:"):
                total += int(line.split()[1]) * 1024
    return total


@contextmanager
def session(size: str = "4GiB") -> Iterator[tq.Session]:
    opened = tq.init(session=f"bench-{time.time_ns()}", **{"storage.size": size})
    try:
        yield opened
    finally:
        tq.close()


@contextmanager
def readers(session_name: str, count: int = 1) -> Iterator[list[Consumer]]:
    opened: list[Consumer] = []
    try:
        opened.extend(Consumer(Reader, session_name) for _ in range(count))
        yield opened
    finally:
        for reader in opened:
            reader.close()
