"""Claims: one batch to 4 workers that all want all rows: <= 5 ms after the put; a metadata round over 4 ranks.

Workers are Ray actors of a worker group, as in a training loop; the empty call of the same group is measured beside it.
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import Any

import ray

import transferqueue as tq
from bench.ours import PARTITION, SYSTEM, session
from bench.report import main
from bench.timing import Measured, MemcpyUnit
from bench.workload import payload_nbytes, workload_w
from transferqueue.controller import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup
from transferqueue.workers import Dispatch, Worker, make_nd_compute_dataproto_dispatch_fn, register


class Receiver(Worker):
    def __init__(self) -> None:
        super().__init__()
        self._register_dispatch_collect_info("dp", dp_rank=self.rank, is_collect=True)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def receive(self, batch: Any) -> float:
        """The time at which the method holds the TensorDict."""
        return time.time()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def nothing(self) -> float:
        return time.time()

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="dp"))
    def add(self, batch: Any) -> Any:
        from tensordict import TensorDict

        return TensorDict({"y": batch["x"] + 1}, batch_size=batch.batch_size)


def fan_out(rows: int, rounds: int) -> list[Measured]:
    ray.init(num_cpus=16, include_dashboard=False, log_to_driver=False)
    try:
        with session():
            client = tq.get_client()
            group = RayWorkerGroup(
                resource_pool=RayResourcePool([4], use_gpu=False),
                ray_cls_with_init=RayClassWithInitArgs(ray.remote(Receiver)),
            )
            try:
                return [_one_to_all(client, group, rows, rounds), _round_trip(client, group, rounds)]
            finally:
                group.shutdown()
    finally:
        ray.shutdown()


def _one_to_all(client: Any, group: Any, rows: int, rounds: int) -> Measured:
    batch = workload_w(rows)
    measured = Measured("fan_out_4", SYSTEM, payload_nbytes(batch))
    unit, empty = MemcpyUnit(measured.nbytes), []
    for round_index in range(rounds * 3 + 2):
        began = time.perf_counter()
        meta = client.put(batch, partition_id=PARTITION)
        put_s = time.perf_counter() - began
        sent = time.time()
        seen = max(group.receive(meta))
        sent_empty = time.time()
        seen_empty = max(group.nothing())
        if round_index > 1:
            measured.put_s.append(put_s)
            measured.get_s.append(seen - sent)
            measured.memcpy_s.append(unit.seconds())
            empty.append(seen_empty - sent_empty)
        client.clear_partition(PARTITION)
    measured.facts["empty_call_ms"] = statistics.median(empty) * 1e3
    measured.facts["beyond_the_calls_ms"] = (statistics.median(measured.get_s) - statistics.median(empty)) * 1e3
    return measured


def _round_trip(client: Any, group: Any, rounds: int) -> Measured:
    """Metadata of 512 rows split over 4 DP ranks, one field added, collected: against the group's empty call."""
    import torch
    from tensordict import TensorDict

    measured, empty = Measured("dispatch_collect_4", SYSTEM), []
    meta = client.put(TensorDict({"x": torch.zeros(512, 4)}, batch_size=[512]), partition_id="round")
    for round_index in range(rounds * 5 + 2):
        began = time.perf_counter()
        group.nothing()
        empty_s = time.perf_counter() - began
        began = time.perf_counter()
        group.add(meta)
        if round_index > 1:
            measured.get_s.append(time.perf_counter() - began)
            empty.append(empty_s)
    measured.facts["empty_call_ms"] = statistics.median(empty) * 1e3
    measured.facts["ratio_to_empty_calls"] = statistics.median(measured.get_s) / statistics.median(empty)
    client.clear_partition("round")
    return measured


if __name__ == "__main__":
    sys.exit(main({"fan_out": fan_out}))
