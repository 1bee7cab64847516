"""Claim: with 1,000,000 rows in the partition, put and get of 512 rows cost at most 1.5x those in an empty one.

Two sessions in two processes, one with the rows and one without, take turns: in one session both partitions would lie
in the same trees. The batch has small fields, so that what is timed is the index and not the copying.
"""

from __future__ import annotations

import hashlib
import statistics
import sys
import time
from typing import Any

import torch
from tensordict import TensorDict

import transferqueue as tq
from bench.consumer import Consumer
from bench.ours import PARTITION, SYSTEM
from bench.report import main
from bench.timing import Measured

BATCH = 512
FILL_ROWS = 1_000_000
FILL_PUT_ROWS = 50_000


SINGLE_ROWS = 10_000


def _numbered_names(stem: str, first: int, count: int) -> list[str]:
    return [f"{stem}-{index:08d}" for index in range(first, first + count)]


def _hashed_names(stem: str, first: int, count: int) -> list[str]:
    """Names without any order, as of random UUIDs."""
    return [hashlib.md5(f"{stem}-{index}".encode()).hexdigest() for index in range(first, first + count)]


class Scaled:
    """A session of its own whose partition holds `rows` rows."""

    def __init__(self, rows: int, kind: str) -> None:
        each, self._rows = (1, 1) if kind == "single" else (FILL_PUT_ROWS, BATCH)
        self._keyed = kind != "fresh"
        self._names = _hashed_names if kind == "random_keys" else _numbered_names
        sizes = {"storage.size": "512MiB", "storage.index_size": "768MiB"}
        tq.init(session=f"bench-scale-{time.time_ns()}", **sizes)
        self._client = tq.get_client()
        for first in range(0, rows, each):
            count = min(each, rows - first)
            fill = TensorDict({"x": torch.zeros(count, dtype=torch.uint8)}, batch_size=[count])
            if self._keyed:
                self._client.kv_batch_put(self._names("fill", first, count), PARTITION, fill)
            else:
                self._client.put(fill, partition_id=PARTITION)
        fields = {f"field_{index}": torch.zeros(self._rows, 16) for index in range(7)}
        self._batch = TensorDict(fields, batch_size=[self._rows])
        self._number = 0

    def put_and_get(self) -> tuple[float, float]:
        """Seconds of a put of fresh rows and of the get of them; both removed again."""
        self._number += 1
        names = self._names("row", self._number * self._rows, self._rows)
        began = time.perf_counter()
        meta: Any = (
            self._client.kv_batch_put(names, PARTITION, self._batch)
            if self._keyed
            else self._client.put(self._batch, partition_id=PARTITION)
        )
        put_s = time.perf_counter() - began
        began = time.perf_counter()
        got = self._client.kv_batch_get_by_meta(meta) if self._keyed else self._client.get_data(meta)
        get_s = time.perf_counter() - began
        del got
        if self._keyed:
            self._client.kv_clear(names, PARTITION)
        else:
            self._client.clear_samples(meta)
        return put_s, get_s

    def many(self, rounds: int) -> list[tuple[float, float]]:
        return [self.put_and_get() for _ in range(rounds)]

    def index_bytes(self) -> int:
        return int(self._client._store.stats()["index_used_bytes"])

    def close(self) -> None:
        tq.close()


def _compare(what: str, rounds: int, fill_rows: int = FILL_ROWS, label: str = "million") -> Measured:
    measured = Measured(f"scale_rows_{what}", SYSTEM)
    taken: dict[int, list[tuple[float, float]]] = {0: [], fill_rows: []}
    opened: dict[int, Consumer] = {}
    try:
        for rows in taken:
            opened[rows] = Consumer(Scaled, rows, what)
        for rows, process in opened.items():
            process.call("many", 5)
            measured.facts[f"scale_rows_{what}_index_bytes_{rows}"] = process.call("index_bytes")
        for _ in range(rounds * 5):
            for rows, process in opened.items():
                taken[rows] += process.call("many", 4)
    finally:
        for process in opened.values():
            process.close()
    measured.put_s = [put_s for put_s, _ in taken[fill_rows]]
    measured.get_s = [get_s for _, get_s in taken[fill_rows]]
    for position, verb in enumerate(("put", "get")):
        full, empty = ([pair[position] for pair in taken[rows]] for rows in (fill_rows, 0))
        measured.facts[f"scale_rows_{what}_{verb}_{label}_over_empty"] = statistics.median(full) / statistics.median(
            empty
        )
        measured.facts[f"scale_rows_{what}_{verb}_empty_ms"] = statistics.median(empty) * 1e3
    return measured


def fresh_rows(rows: int, rounds: int) -> Measured:
    """Rows that the put makes."""
    return _compare("fresh", rounds)


def keyed_rows(rows: int, rounds: int) -> Measured:
    """Rows by keys that end in a number, as samples of a data set have them."""
    return _compare("keyed", rounds)


def single_rows(rows: int, rounds: int) -> Measured:
    """One row by key, in a partition of 10,000 rows put one by one: 10,000 records where the others have 20."""
    return _compare("single", rounds * 10, SINGLE_ROWS, "ten_thousand_puts")


def random_keys(rows: int, rounds: int) -> Measured:
    """Keys without any order. Outside the claim: 512 of them lie on 512 pages of the index, and each is copied."""
    return _compare("random_keys", rounds)


if __name__ == "__main__":
    sys.exit(
        main(
            {"fresh_rows": fresh_rows, "keyed_rows": keyed_rows, "single_rows": single_rows, "random_keys": random_keys}
        )
    )
