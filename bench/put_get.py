"""Claim 1: put + get of W <= 1.2x memcpy, of 8 times the rows too; put alone <= 1.1x on warm memory.

Producer and consumer are two processes. Not timed: the pipe that carries the metadata (its bytes are reported),
clearing between rounds. Steady state: the partition is cleared after each round, so that puts reuse warm extents; three
rounds come first that do not count. What the reader pays after the get stands beside it: touching every page of the new
view.
"""

from __future__ import annotations

import pickle
import statistics
import sys
import time

import transferqueue as tq
from bench.ours import PARTITION, SYSTEM, readers, session, settle
from bench.report import main
from bench.timing import Measured, MemcpyUnit
from bench.workload import payload_nbytes, workload_w

WARM_UP_ROUNDS = 3
BIG = 8


def _put_get(claim: str, rows: int, rounds: int) -> Measured:
    batch = workload_w(rows)
    measured = Measured(claim, SYSTEM, payload_nbytes(batch))
    unit = MemcpyUnit(measured.nbytes)
    touches = []
    with session(f"{4 * measured.nbytes + (1 << 30)}") as opened, readers(opened.name) as (reader,):
        client = tq.get_client()
        for round_index in range(rounds + WARM_UP_ROUNDS):
            began = time.perf_counter()
            meta = client.put(batch, partition_id=PARTITION)
            put_s = time.perf_counter() - began
            get_s = reader.call("get", meta)
            touch_s, faults = reader.call("touch")
            if round_index == 0:
                measured.checked_rows = reader.call("check", rows, 0)
            if round_index >= WARM_UP_ROUNDS:
                measured.put_s.append(put_s)
                measured.get_s.append(get_s)
                measured.memcpy_s.append(unit.seconds())
                touches.append((touch_s, faults))
            reader.call("drop")
            client.clear_partition(PARTITION)
            if round_index == 0:
                measured.facts["huge_bytes"] = settle(client)
        measured.facts["metadata_bytes"] = len(pickle.dumps(meta, protocol=5))
    measured.add_touches([seconds for seconds, _ in touches])
    measured.facts["touch_minor_faults"] = statistics.median(faults for _, faults in touches)
    return measured


def put_get(rows: int, rounds: int) -> Measured:
    return _put_get("put_get_w", rows, rounds)


def put_get_big(rows: int, rounds: int) -> Measured:
    return _put_get("put_get_w_big", rows * BIG, max(rounds // 2, 3))


if __name__ == "__main__":
    sys.exit(main({"put_get": put_get, "put_get_big": put_get_big}))
