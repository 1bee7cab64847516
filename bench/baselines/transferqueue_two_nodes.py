"""TransferQueue 0.1.11 (its own environment) between two nodes: storage units on the producer's, readers on the other.

The same two Ray nodes on one machine as for the others; put in the driver, get in 1 to 8 actors on the other node.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import ray
import transfer_queue as tq

from bench.baselines.ray_two_nodes import READERS, THERE, sleep_until, start_at, two_nodes, warmed_up_rounds
from bench.baselines.transferqueue_peer import SYSTEM
from bench.report import main
from bench.timing import Measured, MemcpyUnit
from bench.workload import payload_nbytes, workload_w


class _Reader:
    def __init__(self) -> None:
        tq.init()
        self._value: Any = None

    def start(self) -> None:
        """Its process is there."""

    def get(self, keys: list[str], begin_s: float) -> float:
        """Seconds from `begin_s` until the batch is there."""
        self._value = None
        sleep_until(begin_s)
        self._value = tq.kv_batch_get(keys=keys, partition_id="bench")
        return time.time() - begin_s

    def rows(self) -> int:
        return int(self._value.batch_size[0])


def two_node_reads(rows: int, rounds: int) -> list[Measured]:
    """W by its keys."""
    batch, keys = workload_w(rows), [f"k{row}" for row in range(rows)]
    unit = MemcpyUnit(payload_nbytes(batch))
    found = []
    with two_nodes():
        tq.init({"backend": {"SimpleStorage": {"required_node_resource": "here"}}})
        remote: Any = ray.remote(num_cpus=0, resources={THERE: 1})(_Reader)
        readers = [remote.remote() for _ in range(max(READERS))]
        ray.get([reader.start.remote() for reader in readers])
        for count in READERS:
            measured = Measured(f"two_nodes_{count}", SYSTEM, unit.nbytes)
            for counts in warmed_up_rounds(max(rounds // 2, 2), first=count == READERS[0]):
                began = time.perf_counter()
                tq.kv_batch_put(keys=keys, partition_id="bench", fields=batch)
                put_s = time.perf_counter() - began
                begin_s = start_at()
                seconds = ray.get([reader.get.remote(keys, begin_s) for reader in readers[:count]])
                measured.facts.setdefault("first_get_ms", 1e3 * max(seconds))
                if counts:
                    measured.put_s.append(put_s)
                    measured.get_s.append(max(seconds))
                    measured.memcpy_s.append(unit.seconds())
            measured.checked_rows = ray.get(readers[0].rows.remote())
            found.append(measured)
        tq.close()
    return found


if __name__ == "__main__":
    sys.exit(main({"two_node_reads": two_node_reads}))
