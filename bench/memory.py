"""Claim 10: 2.0 copies resident while producer and consumer hold 8 W, 1.0 when written in place, 7 more readers add
nothing, nothing used after clear and drop; the controller grows by less than 10 MiB while 1 GiB is dispatched.

Copies are proportional set sizes (a page mapped by n processes counts 1/n in each) over the payload's bytes, after
every holder touched every page. Left out: private pages of Python and torch themselves, the index, page tables.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import ray
import torch
from tensordict import TensorDict

import transferqueue as tq
from bench.ours import PARTITION, SYSTEM, readers, session, shared_pss_bytes
from bench.report import main
from bench.timing import Measured
from bench.workload import payload_nbytes, touch_pages, workload_w
from transferqueue.controller import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup
from transferqueue.workers import Dispatch, Execute, Worker, make_nd_compute_dataproto_dispatch_fn, register

BIG = 8
MIB = 1 << 20


def resident_copies(rows: int, rounds: int) -> Measured:
    batch = workload_w(rows * BIG)
    measured = Measured("memory", SYSTEM, payload_nbytes(batch))
    with session("6GiB") as opened, readers(opened.name, 8) as others:
        client = tq.get_client()
        meta = client.put(batch, partition_id=PARTITION)
        # The producer's own batch is the first copy, the payload of the store the second.
        one = 1.0 + _copies(others[:1], meta, measured.nbytes)
        measured.facts["copies_put"] = one
        measured.facts["copies_added_by_7_readers"] = 1.0 + _copies(others, meta, measured.nbytes) - one
        for other in others:
            other.call("drop")
        client.clear_partition(PARTITION)
        measured.facts["used_bytes_after"] = _used_bytes(client)
        measured.facts["warm_bytes_after"] = client.stats().warm_bytes
    with session() as opened, readers(opened.name) as others:  # anew: no warm page of the put is mapped here
        measured.facts["copies_in_place"] = _in_place(tq.get_client(), others, rows * BIG)
    return measured


def _copies(holders: list[Any], meta: Any, nbytes: int) -> float:
    """What this process and the holders have mapped of the payload when all hold it, in copies."""
    for holder in holders:
        holder.call("get", meta)
        holder.call("touch")
    return float((shared_pss_bytes() + sum(holder.call("pss_bytes") for holder in holders)) / nbytes)


def _in_place(client: Any, holders: list[Any], rows: int) -> float:
    """The producer computes into the store and keeps its tensors over the commit: they are the one copy."""
    allocation = client.alloc({"x": ((4096,), torch.int64)}, partition_id=PARTITION, batch_size=rows)
    held = allocation.data["x"]
    held.fill_(1)
    meta = allocation.commit()
    touch_pages({"x": held})
    copies = _copies(holders, meta, held.numel() * held.element_size())
    for holder in holders:
        holder.call("drop")
    return copies


def _used_bytes(client: Any) -> int:
    """Drops are finished off the caller's path, so a moment is given."""
    until_s = time.monotonic() + 10
    while (used := client.stats().used_bytes) and time.monotonic() < until_s:
        time.sleep(0.01)
    return int(used)


class Rank(Worker):
    """Makes rows, then reads them as shards of one batch."""

    def __init__(self) -> None:
        super().__init__()
        self._register_dispatch_collect_info("dp", dp_rank=self.rank, is_collect=True)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, execute_mode=Execute.RANK_ZERO)
    def produce(self, rows: int) -> list[Any]:
        """`rows` rows of 4 KiB; the metadata in a list, which the bridge passes through."""
        data = TensorDict({"x": torch.ones(rows, 512, dtype=torch.int64)}, [rows])
        return [tq.get_client().put(data, partition_id=PARTITION)]

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="dp"))
    def score(self, batch: Any) -> Any:
        return TensorDict({"score": batch["x"][:, 0] + batch["x"][:, -1]}, batch_size=batch.batch_size)


def controller_payload(rows: int, rounds: int) -> Measured:
    """1 GiB made by a rank, dispatched in 4 shards: growth of the controller's peak resident set, mapped pages
    included."""
    count = (1 << 30) // 4096
    measured = Measured("controller_payload", SYSTEM, count * 4096)
    ray.init("local", num_cpus=16, include_dashboard=False, log_to_driver=False)
    try:
        with session("3GiB"):
            group = RayWorkerGroup(
                RayResourcePool([4], use_gpu=False, max_colocate_count=1), RayClassWithInitArgs(ray.remote(Rank))
            )
            try:
                group.score(group.produce(16)[0])  # imports and first calls
                [meta] = group.produce(count)
                before = _reset_peak_bytes()
                collected = group.score(meta)
                measured.facts["peak_growth_mib"] = (_peak_bytes() - before) / MIB
                measured.checked_rows = int(collected.size)
                scores = tq.get_client().get_data(collected, fields=["score"])["score"]
                if len(scores) != count or int(scores.sum()) != 2 * count:
                    raise ValueError("the scores that came back are wrong")
            finally:
                group.shutdown()
    finally:
        ray.shutdown()
    return measured


def _status_bytes(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no {name} in /proc/self/status")


def _reset_peak_bytes() -> int:
    """Sets this process's peak to what is resident now; returns that."""
    Path("/proc/self/clear_refs").write_text("5")
    return _status_bytes("VmHWM")


def _peak_bytes() -> int:
    return _status_bytes("VmHWM")


if __name__ == "__main__":
    sys.exit(main({"resident_copies": resident_copies, "controller_payload": controller_payload}))
