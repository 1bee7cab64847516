"""Claim: metadata stays small and is cut and joined fast. 512 or 4,096 contiguous rows x 7 fields pickle to <= 1,000 B,
4,096 scattered rows to <= 20 kB; 8,192 rows x 20 fields are split in 64 and joined again in <= 10 ms.
"""

from __future__ import annotations

import pickle
import statistics
import sys
import time

import torch
from tensordict import TensorDict

import transferqueue as tq
from bench.ours import PARTITION, SYSTEM, session
from bench.report import main
from bench.timing import Measured
from bench.workload import workload_w

SPLIT_ROWS, SPLIT_FIELDS, SPLIT_PARTS = 8192, 20, 64


def _nbytes(meta: tq.BatchMeta) -> int:
    return len(pickle.dumps(meta, protocol=5))


def metadata_size(rows: int, rounds: int) -> Measured:
    """Bytes of `pickle.dumps(meta, protocol=5)` for the 7 fields of W; scattered rows are every other one or chosen at
    random out of eight times as many, sorted or not."""
    measured = Measured("metadata_bytes", SYSTEM)
    with session("6GiB"):
        client = tq.get_client()
        for count in (512, 4096):
            meta = client.put(workload_w(count), partition_id=PARTITION)
            measured.facts[f"metadata_bytes_contiguous_{count}"] = _nbytes(meta)
            client.clear_samples(meta)
        # The same 7 fields with short rows: what is pickled does not depend on their length.
        narrow = {name: torch.zeros(4096 * 8, 1, dtype=torch.int64) for name in "abcdefg"}
        meta = client.put(TensorDict(narrow, batch_size=[4096 * 8]), partition_id=PARTITION)
        chosen = torch.randperm(4096 * 8, generator=torch.Generator().manual_seed(0))[:4096]
        measured.facts["metadata_bytes_every_other_4096"] = _nbytes(meta.select_samples(list(range(0, 8192, 2))))
        measured.facts["metadata_bytes_scattered_sorted_4096"] = _nbytes(
            meta.select_samples(chosen.sort().values.tolist())
        )
        measured.facts["metadata_bytes_scattered_4096"] = _nbytes(meta.select_samples(chosen.tolist()))
    return measured


def split_and_join(rows: int, rounds: int) -> Measured:
    """`chunk(64)` and `BatchMeta.concat` of contiguous and of scattered rows."""
    measured = Measured("metadata_split_join", SYSTEM)
    with session():
        client = tq.get_client()
        fields = {f"field_{index:02d}": torch.zeros(SPLIT_ROWS * 4, 1) for index in range(SPLIT_FIELDS)}
        whole = client.put(TensorDict(fields, batch_size=[SPLIT_ROWS * 4]), partition_id=PARTITION)
        order = torch.randperm(SPLIT_ROWS * 4, generator=torch.Generator().manual_seed(0))[:SPLIT_ROWS].tolist()
        for name, meta in (("contiguous", whole[:SPLIT_ROWS]), ("scattered", whole.select_samples(order))):
            taken = []
            for _ in range(rounds * 5):
                began = time.perf_counter()
                joined = tq.BatchMeta.concat(meta.chunk(SPLIT_PARTS))
                taken.append(time.perf_counter() - began)
                if joined.global_indexes != meta.global_indexes or joined.field_names != meta.field_names:
                    raise ValueError("what was joined is not what was split")
            measured.facts[f"metadata_split_join_{name}_ms"] = statistics.median(taken) * 1e3
    return measured


if __name__ == "__main__":
    sys.exit(main({"metadata_size": metadata_size, "split_and_join": split_and_join}))
