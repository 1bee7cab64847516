"""Claim 9: one batch to 4 workers that all want all rows: one put and <= 5 ms beyond the actor calls themselves; a
round of dispatch and collect of metadata over 4 ranks <= 1.3x four empty Ray actor calls.

Workers are Ray actors of a worker group, as in a training loop. The empty calls go to the same four actors, straight
through Ray, in the same rounds. Not timed: starting the actors, the put of the round trip's rows.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray
import torch
from tensordict import TensorDict

import transferqueue as tq
from bench.ours import PARTITION, SYSTEM, session, settle
from bench.report import main
from bench.timing import Measured, MemcpyUnit
from bench.workload import payload_nbytes, workload_w
from transferqueue.controller import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup
from transferqueue.metadata import BatchMeta
from transferqueue.workers import Dispatch, PerRank, Worker, make_nd_compute_dataproto_dispatch_fn, register

RANKS = 4
WARM_UP_ROUNDS = 3


class Receiver(Worker):
    """A rank; `empty` is called straight through Ray."""

    def __init__(self) -> None:
        super().__init__()
        self._register_dispatch_collect_info("dp", dp_rank=self.rank, is_collect=True)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def receive(self, batch: Any) -> float:
        """The wall-clock time at which the method holds the TensorDict."""
        return time.time()

    def same(self, meta: Any) -> Any:
        """Metadata in, metadata out; `same` is no registered method, so no TensorDict is made."""
        return meta

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="dp"))
    def shard(self, batch: Any) -> Any:
        """The same with the TensorDict of this rank's rows; a dict is extra_info, nothing is stored."""
        return {"rows": len(batch)}

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="dp"))
    def add(self, batch: Any) -> Any:
        """The same with one small field stored on the rows."""
        return TensorDict({"y": batch["x"] + 1}, batch_size=batch.batch_size)

    def empty(self) -> float:
        return time.time()


@contextmanager
def _group() -> Iterator[Any]:
    ray.init("local", num_cpus=16, include_dashboard=False, log_to_driver=False)
    try:
        with session():
            group = RayWorkerGroup(
                RayResourcePool([RANKS], use_gpu=False, max_colocate_count=1),
                RayClassWithInitArgs(ray.remote(Receiver)),
            )
            try:
                yield group
            finally:
                group.shutdown()
    finally:
        ray.shutdown()


def _empty_calls(group: Any) -> list[float]:
    answers: list[float] = ray.get([worker.empty.remote() for worker in group.workers])
    return answers


def fan_out(rows: int, rounds: int) -> list[Measured]:
    with _group() as group:
        return [_one_to_all(group, rows, rounds), *_round_trips(group, rounds)]


def _one_to_all(group: Any, rows: int, rounds: int) -> Measured:
    """From sending the metadata to the last of 4 ranks holding the TensorDict."""
    client, batch = tq.get_client(), workload_w(rows)
    measured = Measured("fan_out_4", SYSTEM, payload_nbytes(batch))
    unit, empty = MemcpyUnit(measured.nbytes), []
    for round_index in range(rounds * 3 + WARM_UP_ROUNDS):
        began = time.perf_counter()
        meta = client.put(batch, partition_id=PARTITION)
        put_s = time.perf_counter() - began
        sent = time.time()
        seen = max(group.receive(meta))
        sent_empty = time.time()
        seen_empty = max(_empty_calls(group))
        if round_index >= WARM_UP_ROUNDS:
            measured.put_s.append(put_s)
            measured.get_s.append(seen - sent)
            measured.memcpy_s.append(unit.seconds())
            empty.append(seen_empty - sent_empty)
        client.clear_partition(PARTITION)
        if round_index == 0:
            settle(client)
    measured.facts["empty_calls_ms"] = statistics.median(empty) * 1e3
    measured.facts["beyond_the_calls_ms"] = (statistics.median(measured.get_s) - statistics.median(empty)) * 1e3
    return measured


def _round_trips(group: Any, rounds: int) -> list[Measured]:
    """512 rows split over 4 DP ranks and collected, in three forms: metadata alone, with the TensorDict, and with a
    field of 4 floats a row stored."""
    client = tq.get_client()
    meta = client.put(TensorDict({"x": torch.zeros(512, 4)}, batch_size=[512]), partition_id="round")

    def metadata_alone(meta: BatchMeta) -> BatchMeta:
        return BatchMeta.concat(group.execute_all_sync("same", PerRank(meta.chunk(RANKS))))

    found = []
    forms = {
        "dispatch_collect_4_metadata": metadata_alone,
        "dispatch_collect_4": group.shard,
        "dispatch_collect_4_field": group.add,
    }
    for claim, method in forms.items():
        measured, empty = Measured(claim, SYSTEM), []
        for round_index in range(rounds * 10 + WARM_UP_ROUNDS):
            began = time.perf_counter()
            _empty_calls(group)
            between = time.perf_counter()
            collected = method(meta)
            if round_index >= WARM_UP_ROUNDS:
                measured.get_s.append(time.perf_counter() - between)
                empty.append(between - began)
        measured.checked_rows = int(collected.size)
        measured.facts["empty_calls_ms"] = statistics.median(empty) * 1e3
        measured.facts["ratio_to_empty_calls"] = statistics.median(measured.get_s) / statistics.median(empty)
        found.append(measured)
    client.clear_partition("round")
    return found


if __name__ == "__main__":
    sys.exit(main({"fan_out": fan_out}))
