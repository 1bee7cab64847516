"""Claim 13: W between two nodes at least twice as fast as the better of Ray's object store and TransferQueue 0.1.11,
once over the wire however many ranks of a node read it, and in about the same time for 1 to 8 of them.

The two nodes are Ray nodes on one machine that talk over loopback, as for the others: put in the driver, get in 1 to 8
actors on the other node, which has not seen the rows. Timed in the actors, from the moment at which all of them are
told to begin until the slowest holds the batch.
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import Any

import ray

import transferqueue as tq
from bench.baselines.ray_two_nodes import READERS, THERE, sleep_until, start_at, two_nodes, warmed_up_rounds
from bench.ours import PARTITION, SYSTEM
from bench.report import main
from bench.timing import Measured, MemcpyUnit
from bench.workload import assert_equal_batches, payload_nbytes, workload_w
from transferqueue.metadata import BatchMeta


class _Reader:
    def __init__(self) -> None:
        self._value: Any = None

    def start(self) -> None:
        """Joins its node's part of the session."""
        tq.get_client()

    def get(self, meta: BatchMeta, begin_s: float) -> tuple[float, int]:
        """(seconds from `begin_s` until the batch is there, bytes that this call pulled from the other node)."""
        client = tq.get_client()
        self._value = None
        sleep_until(begin_s)
        self._value, report = client.get_data_with_report(meta)
        return time.time() - begin_s, report.bytes_pulled

    def check(self, rows: int) -> int:
        """Compares every row with W; raises ValueError naming the first field that differs."""
        assert_equal_batches(self._value, workload_w(rows))
        return rows


def two_node_reads(rows: int, rounds: int) -> list[Measured]:
    batch = workload_w(rows)
    found = []
    with two_nodes(), tq.init(**{"storage.size": "1GiB", "cluster.enabled": True}) as session:
        client = session.client
        remote: Any = ray.remote(num_cpus=0, resources={THERE: 1})(_Reader)
        readers = [remote.remote() for _ in range(max(READERS))]
        ray.get([reader.start.remote() for reader in readers])
        unit = MemcpyUnit(payload_nbytes(batch))
        for count in READERS:
            measured, pulled = Measured(f"two_nodes_{count}", SYSTEM, unit.nbytes), []
            meta = None
            for counts in warmed_up_rounds(rounds, first=count == READERS[0]):
                if meta is not None:
                    client.clear_samples(meta)
                began = time.perf_counter()
                meta = client.put(batch, partition_id=PARTITION)
                put_s = time.perf_counter() - began
                begin_s = start_at()
                answers = ray.get([reader.get.remote(meta, begin_s) for reader in readers[:count]])
                measured.facts.setdefault("first_get_ms", 1e3 * max(seconds for seconds, _ in answers))
                if counts:
                    measured.put_s.append(put_s)
                    measured.get_s.append(max(seconds for seconds, _ in answers))
                    measured.memcpy_s.append(unit.seconds())
                    pulled.append(sum(nbytes for _, nbytes in answers))
            measured.checked_rows = ray.get(readers[count - 1].check.remote(rows))
            client.clear_partition(PARTITION)
            measured.facts["pulled_over_payload"] = statistics.median(pulled) / unit.nbytes
            found.append(measured)
    _compare(found)
    return found


def _compare(found: list[Measured]) -> None:
    alone = statistics.median(found[0].get_s)
    for measured in found:
        measured.facts["time_over_1_reader"] = statistics.median(measured.get_s) / alone


if __name__ == "__main__":
    sys.exit(main({"two_node_reads": two_node_reads}))
