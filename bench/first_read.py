"""Claim 7: the first read of a view costs at most 1.2x the second; get + drop <= 0.15x memcpy; in a fresh process get +
touching every page once <= 0.7x.

Four things are timed apart, each in the consumer: the get, the first pass over the view, the second pass, the drop. A
"read" sums every byte of the tensors (about one memcpy by itself), a "touch" reads one byte a page: page faults and
little else. Faults are counted over each. `get_drop` drops the view unread, `get_drop_after_use` is the get and the
drop of one that was gone through twice, without that. Steady state: the process viewed those pages before. Fresh: a
process per round, which has imported everything and read a small batch of another partition, but viewed none of W's
pages.
"""

from __future__ import annotations

import statistics
import sys
import time

import transferqueue as tq
from bench.ours import PARTITION, SYSTEM, readers, session, settle
from bench.report import main
from bench.timing import Measured, MemcpyUnit
from bench.workload import payload_nbytes, small_batch, workload_w

WARM_UP_ROUNDS = 3


def steady(rows: int, rounds: int) -> Measured:
    """Each round puts W anew (into warm extents), then reads, touches, and drops it."""
    batch = workload_w(rows)
    measured = Measured("first_read_steady", SYSTEM, payload_nbytes(batch))
    unit = MemcpyUnit(measured.nbytes)
    seconds: dict[str, list[float]] = {}
    faults: dict[str, list[int]] = {}

    def note(name: str, taken: tuple[float, int]) -> None:
        seconds.setdefault(name, []).append(taken[0])
        faults.setdefault(name, []).append(taken[1])

    with session() as opened, readers(opened.name) as (reader,):
        client = tq.get_client()
        for round_index in range(rounds + WARM_UP_ROUNDS):
            began = time.perf_counter()
            meta = client.put(batch, partition_id=PARTITION)
            put_s = time.perf_counter() - began
            if round_index == WARM_UP_ROUNDS:
                seconds.clear()
                faults.clear()
            for kind in ("read", "touch"):
                get_s = reader.call("get", meta)
                note(f"first_{kind}", reader.call(kind))
                note(f"second_{kind}", reader.call(kind))
                drop_s = reader.call("drop")
                note("drop", (drop_s, 0))
                note("get_drop_after_use", (get_s + drop_s, 0))
            note("get_drop", (reader.call("get_and_drop", meta), 0))
            memcpy_s = unit.seconds()
            client.clear_partition(PARTITION)
            if round_index == 0:
                measured.facts["huge_bytes"] = settle(client)
            if round_index >= WARM_UP_ROUNDS:
                measured.put_s.append(put_s)
                measured.get_s.append(get_s)
                measured.memcpy_s.append(memcpy_s)
    memcpy_s = statistics.median(measured.memcpy_s)
    for name, values in seconds.items():
        measured.facts[f"{name}_ratio"] = statistics.median(values) / memcpy_s
    for name in ("first_read", "second_read", "first_touch", "second_touch"):
        measured.facts[f"{name}_minor_faults"] = statistics.median(faults[name])
    measured.facts["first_to_second_read"] = _quotient(seconds, "read")
    measured.facts["first_to_second_touch"] = _quotient(seconds, "touch")
    return measured


def _quotient(seconds: dict[str, list[float]], kind: str) -> float:
    """Of the medians; single pairs move with the neighbours of the machine."""
    return statistics.median(seconds[f"first_{kind}"]) / statistics.median(seconds[f"second_{kind}"])


def fresh(rows: int, rounds: int) -> Measured:
    """A new consumer process per round."""
    batch = workload_w(rows)
    measured = Measured("first_read_fresh", SYSTEM, payload_nbytes(batch))
    unit = MemcpyUnit(measured.nbytes)
    touches, faults, both = [], [], []
    with session() as opened:
        client = tq.get_client()
        small = client.put(small_batch(), partition_id="small")
        meta = client.put(batch, partition_id=PARTITION)
        measured.facts["huge_bytes"] = settle(client)
        for _ in range(rounds):
            with readers(opened.name) as (reader,):
                reader.call("get", small)
                get_s = reader.call("get", meta)
                touch_s, count = reader.call("touch")
            measured.get_s.append(get_s)
            measured.memcpy_s.append(unit.seconds())
            touches.append(touch_s)
            faults.append(count)
            both.append(get_s + touch_s)
    memcpy_s = statistics.median(measured.memcpy_s)
    measured.facts["touch_ratio"] = statistics.median(touches) / memcpy_s
    measured.facts["get_touch_ratio"] = statistics.median(both) / memcpy_s
    measured.facts["touch_minor_faults"] = statistics.median(faults)
    return measured


if __name__ == "__main__":
    sys.exit(main({"steady": steady, "fresh": fresh}))
