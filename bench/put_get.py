"""Claims: put + get of W <= 1.5x memcpy; get alone <= 0.1x (strings included), the same time for 8 times the rows.

Producer and consumer are two processes. Not timed: the pipe that carries the metadata (its bytes are reported).
"""

from __future__ import annotations

import pickle
import statistics
import sys
import time

import transferqueue as tq
from bench.ours import PARTITION, SYSTEM, readers, session
from bench.report import main
from bench.timing import Measured, MemcpyUnit
from bench.workload import payload_nbytes, workload_w

TENSOR_FIELDS = ["input_ids", "attention_mask", "position_ids", "responses", "old_log_probs", "prompts"]


def put_get(rows: int, rounds: int) -> Measured:
    """Steady state: the partition is cleared after each round, so that puts reuse warm extents."""
    batch = workload_w(rows)
    measured = Measured("put_get_w", SYSTEM, payload_nbytes(batch))
    unit = MemcpyUnit(measured.nbytes)
    tensors_s, drop_s, touches = [], [], []
    with session() as opened, readers(opened.name) as (reader,):
        client = tq.get_client()
        for round_index in range(rounds + 3):
            began = time.perf_counter()
            meta = client.put(batch, partition_id=PARTITION)
            put_s = time.perf_counter() - began
            get_s = reader.call("get", meta)
            touch = reader.call("touch")
            if round_index == 0:
                measured.facts["first_touch_s"], measured.facts["first_touch_minor_faults"] = touch
                measured.checked_rows = reader.call("check", rows, 0)
            if round_index > 2:
                measured.put_s.append(put_s)
                measured.get_s.append(get_s)
                measured.memcpy_s.append(unit.seconds())
                tensors_s.append(reader.call("get", meta, TENSOR_FIELDS))
                drop_s.append(reader.call("get_and_drop", meta))
                touches.append(touch)
            reader.call("drop")
            client.clear_partition(PARTITION)
        measured.facts["metadata_bytes"] = len(pickle.dumps(meta, protocol=5))
    memcpy_s = statistics.median(measured.memcpy_s)
    measured.facts["get_tensor_fields_ratio"] = statistics.median(tensors_s) / memcpy_s
    measured.facts["get_and_drop_ratio"] = statistics.median(drop_s) / memcpy_s
    measured.facts["touch_after_get_ratio"] = statistics.median(seconds for seconds, _ in touches) / memcpy_s
    measured.facts["touch_minor_faults"] = statistics.median(faults for _, faults in touches)
    return measured


def flat_cost(rows: int, rounds: int) -> list[Measured]:
    """get alone of 64, 512 and 4,096 rows, one after another: the bytes grow 64 times, the time should not.

    The memcpys of the unit are taken after the gets: between them they would empty the caches, which `put_get` shows.
    """
    found = []
    with session("6GiB") as opened, readers(opened.name) as (reader,):
        client = tq.get_client()
        for count in (64, 512, 4096):
            batch = workload_w(count)
            measured = Measured(f"get_{count}_rows", SYSTEM, payload_nbytes(batch))
            meta = client.put(batch, partition_id=PARTITION)
            measured.get_s = reader.call("get_many", meta, rounds * 3 + 2)[2:]
            tensors = [reader.call("get", meta, TENSOR_FIELDS) for _ in range(rounds * 3 + 2)][2:]
            measured.facts["get_tensor_fields_ms"] = statistics.median(tensors) * 1e3
            reader.call("drop")
            client.clear_partition(PARTITION)
            unit = MemcpyUnit(measured.nbytes)
            measured.memcpy_s = [unit.seconds() for _ in range(rounds)]
            found.append(measured)
    return found


def written_in_place(rows: int, rounds: int) -> list[Measured]:
    """alloc -> fill -> commit -> get, against the same filling of warm private memory. Dense fields of W.

    `dead`: no tensor of the allocation is alive at commit. `alive`: one is kept over it.
    """
    import torch

    source = {name: value for name, value in workload_w(rows, strings=False).items() if name != "prompts"}
    nbytes = sum(value.numel() * value.element_size() for value in source.values())
    private = {name: torch.empty_like(value) for name, value in source.items()}
    unit = MemcpyUnit(nbytes)
    fields = {name: (tuple(value.shape[1:]), value.dtype) for name, value in source.items()}

    def fill(target) -> float:  # type: ignore[no-untyped-def]
        began = time.perf_counter()
        for name, value in source.items():
            target[name].copy_(value)
        return time.perf_counter() - began

    found = []
    with session() as opened, readers(opened.name) as (reader,):
        client = tq.get_client()
        for kind in ("dead", "alive"):
            measured = Measured(f"written_in_place_{kind}", SYSTEM, nbytes)
            beyond = []
            for round_index in range(rounds + 2):
                own_s = fill(private)
                began = time.perf_counter()
                allocation = client.alloc(fields, partition_id=PARTITION, batch_size=rows)
                fill(allocation.data)
                kept = allocation.data["input_ids"] if kind == "alive" else None
                meta = allocation.commit()
                put_s = time.perf_counter() - began
                get_s = reader.call("get", meta)
                del kept
                if round_index > 1:
                    measured.put_s.append(put_s)
                    measured.get_s.append(get_s)
                    measured.memcpy_s.append(unit.seconds())
                    beyond.append(put_s + get_s - own_s)
                reader.call("drop")
                client.clear_partition(PARTITION)
            measured.facts["beyond_own_writing_ratio"] = statistics.median(beyond) / statistics.median(
                measured.memcpy_s
            )
            found.append(measured)
    return found


if __name__ == "__main__":
    sys.exit(main({"put_get": put_get, "flat_cost": flat_cost, "written_in_place": written_in_place}))
