"""Claims: metadata of 512 or 4,096 contiguous rows pickles to <= 1,000 B; copies resident while both sides hold 8 W."""

from __future__ import annotations

import pickle
import sys

import torch

import transferqueue as tq
from bench.ours import PARTITION, SYSTEM, readers, session, shared_pss_bytes
from bench.report import main
from bench.timing import Measured
from bench.workload import payload_nbytes, workload_w


def metadata_size(rows: int, rounds: int) -> list[Measured]:
    """Bytes of `pickle.dumps(meta, protocol=5)` for W (7 fields), contiguous and scattered."""
    measured = Measured("metadata_bytes", SYSTEM)
    with session("6GiB"):
        client = tq.get_client()
        for count in (512, 4096):
            meta = client.put(workload_w(count), partition_id=PARTITION)
            measured.facts[f"contiguous_{count}"] = len(pickle.dumps(meta, protocol=5))
            half = torch.randperm(count, generator=torch.Generator().manual_seed(0))[: count // 2]
            measured.facts[f"scattered_{count // 2}"] = len(
                pickle.dumps(meta.select_samples(half.sort().values.tolist()), protocol=5)
            )
    return [measured]


def resident_copies(rows: int, rounds: int) -> list[Measured]:
    """Proportional set sizes of producer and consumer over the payload, in batches of 8 W; both hold and touch it."""
    batch = workload_w(rows * 8)
    measured = Measured("resident_copies", SYSTEM, payload_nbytes(batch))
    with session("6GiB") as opened, readers(opened.name) as (reader,):
        client = tq.get_client()
        meta = client.put(batch, partition_id=PARTITION)
        reader.call("get", meta)
        reader.call("touch")
        shared = shared_pss_bytes() + reader.call("pss_bytes")
        # The producer's own batch is the first copy, the payload of the store the second.
        measured.facts["copies_producer_and_consumer"] = 1.0 + shared / measured.nbytes
        reader.call("drop")
        client.clear_partition(PARTITION)
        stats = client.stats()
        measured.facts["used_bytes_after_clear"] = stats.used_bytes
        measured.facts["warm_bytes_after_clear"] = stats.warm_bytes
    return [measured]


if __name__ == "__main__":
    sys.exit(main({"metadata_size": metadata_size, "resident_copies": resident_copies}))
