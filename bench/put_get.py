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

import transferqueue as tq
from bench.ours import SYSTEM, readers, session
from bench.report import main
from bench.timing import Measured
from bench.workload import payload_nbytes, workload_w
from transferqueue.microbench.measures import put_get_rounds

BIG = 8


def _put_get(claim: str, rows: int, rounds: int) -> Measured:
    batch = workload_w(rows)
    measured = Measured(claim, SYSTEM, payload_nbytes(batch))
    with session(f"{4 * measured.nbytes + (1 << 30)}") as opened, readers(opened.name) as (reader,):
        meta, faults = put_get_rounds(measured, tq.get_client(), reader, batch, rounds)
        measured.facts["metadata_bytes"] = len(pickle.dumps(meta, protocol=5))
    measured.facts["touch_minor_faults"] = statistics.median(faults)
    return measured


def put_get(rows: int, rounds: int) -> Measured:
    return _put_get("put_get_w", rows, rounds)


def put_get_big(rows: int, rounds: int) -> Measured:
    return _put_get("put_get_w_big", rows * BIG, max(rounds // 2, 3))


if __name__ == "__main__":
    sys.exit(main({"put_get": put_get, "put_get_big": put_get_big}))
