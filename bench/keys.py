"""Claim: 10,000 keys are put, read, listed and looked up in <= 20, 12, 8 and 8 ms; a get by keys costs at most 1.2 us a
key more than the same get by BatchMeta.
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
from bench.ours import PARTITION, SYSTEM, session
from bench.report import main
from bench.timing import Measured

COUNT = 10_000


def _timed(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    found = call()
    taken_s = time.perf_counter() - began
    del found
    return taken_s


def keys_10k(rows: int, rounds: int) -> list[Measured]:
    """Fresh keys each round; put again (no new rows) is reported beside them; the clear is not timed."""
    batch = TensorDict({"x": torch.zeros(COUNT, 4)}, batch_size=[COUNT])
    tags = [{}] * COUNT
    full_tags = [{"step": index % 7, "score": index / 3} for index in range(COUNT)]
    with session():
        client = tq.get_client()

        def measure(names: list[str], given: list[dict[str, Any]]) -> dict[str, float]:
            put = lambda: tq.kv_batch_put(keys=names, partition_id=PARTITION, fields=batch, tags=given)  # noqa: E731
            taken = {
                "put": _timed(put),
                "get": _timed(lambda: tq.kv_batch_get(keys=names, partition_id=PARTITION)),
                "list": _timed(lambda: tq.kv_list(partition_id=PARTITION)),
                "metadata": _timed(lambda: client.kv_retrieve_meta(keys=names, partition_id=PARTITION)),
                "put_again": _timed(put),
            }
            client.clear_partition(PARTITION)
            return taken

        found: dict[str, Measured] = {}
        for round_index in range(rounds + 1):
            for label, given in (("", tags), ("_with_tags", full_tags)):
                names = [f"key-{round_index}-{index:08d}" for index in range(COUNT)]
                for name, taken_s in measure(names, given).items():
                    claim = f"keys_10k_{name}{label}"
                    measured = found.setdefault(claim, Measured(claim, SYSTEM))
                    if round_index:
                        (measured.get_s if name == "get" else measured.put_s).append(taken_s)
    for claim, measured in found.items():
        measured.facts[f"{claim}_ms"] = statistics.median(measured.put_s or measured.get_s) * 1e3
    return list(found.values())


def by_keys(rows: int, rounds: int) -> Measured:
    """The same rows read by key and by BatchMeta, in turns; the difference a key."""
    measured = Measured("by_keys", SYSTEM)
    with session():
        client = tq.get_client()
        for count in (512, 4096):
            names = [f"sample-{index:08d}" for index in range(count)]
            fields = {f"field_{index}": torch.zeros(count, 64) for index in range(7)}
            client.kv_batch_put(keys=names, partition_id=PARTITION, fields=TensorDict(fields, batch_size=[count]))
            meta = client.kv_retrieve_meta(names, PARTITION)
            more = []
            for _ in range(rounds * 20):
                keyed_s = _timed(lambda names=names: client.kv_batch_get(names, PARTITION))  # type: ignore[misc]
                plain_s = _timed(lambda meta=meta: client.get_data(meta))  # type: ignore[misc]
                more.append((keyed_s - plain_s) / count * 1e6)
            measured.facts[f"by_keys_extra_us_per_key_{count}"] = statistics.median(more)
            client.clear_partition(PARTITION)
    return measured


if __name__ == "__main__":
    sys.exit(main({"keys_10k": keys_10k, "by_keys": by_keys}))
