"""The consumer's side: attached to the session in a process of its own, timing its calls there."""

from __future__ import annotations

import time
from typing import Any

import transferqueue as tq
from transferqueue.microbench.timing import page_faults
from transferqueue.microbench.workload import assert_equal_batches, read_all, touch_pages, workload_w


class Reader:
    """Attached to the session by name. It holds the batch of its last get; dropping that is never part of the next."""

    def __init__(self, session: str) -> None:
        tq.init(session=session)
        self._client = tq.get_client()
        self._batch: Any = None

    def get(self, meta: Any, fields: list[str] | None = None) -> float:
        """Seconds of `get_data`."""
        self._batch = None
        began = time.perf_counter()
        self._batch = self._client.get_data(meta, fields=fields)
        return time.perf_counter() - began

    def get_many(self, meta: Any, rounds: int, fields: list[str] | None = None) -> list[float]:
        """Seconds of `rounds` gets one after another: nothing else goes through the caches between them."""
        return [self.get(meta, fields) for _ in range(rounds)]

    def get_and_drop(self, meta: Any) -> float:
        """Seconds of a get and of dropping what it returned."""
        self._batch = None
        began = time.perf_counter()
        self._batch = self._client.get_data(meta)
        self._batch = None
        return time.perf_counter() - began

    def touch(self) -> tuple[float, int]:
        """Seconds to touch each page of the held batch once, and the minor faults that took."""
        faults = page_faults()[0]
        began = time.perf_counter()
        touch_pages(self._batch)
        return time.perf_counter() - began, page_faults()[0] - faults

    def read(self) -> tuple[float, int]:
        """Seconds to read every byte of the held batch's tensors once, and the minor faults that took."""
        faults = page_faults()[0]
        began = time.perf_counter()
        read_all(self._batch)
        return time.perf_counter() - began, page_faults()[0] - faults

    def drop(self) -> float:
        """Seconds of dropping the held batch."""
        began = time.perf_counter()
        self._batch = None
        return time.perf_counter() - began

    def get_keys(self, keys: list[str], partition_id: str) -> float:
        """Seconds of `kv_batch_get`."""
        self._batch = None
        began = time.perf_counter()
        self._batch = tq.kv_batch_get(keys=keys, partition_id=partition_id)
        return time.perf_counter() - began

    def check(self, rows: int, seed: int) -> int:
        """Compares every row of the held batch with W of that seed; raises ValueError naming the first that differs."""
        assert_equal_batches(self._batch, workload_w(rows, seed))
        return rows

    def close(self) -> None:
        """Leaves the session."""
        self._batch = None
        tq.close()
