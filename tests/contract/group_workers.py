"""Worker classes of the group tests: module level, so that ranks import them."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Any

import torch
from tensordict import NonTensorData, TensorDict

from transferqueue.workers import (
    Dispatch,
    Execute,
    Worker,
    init_process_group,
    make_mesh,
    make_nd_compute_dataproto_dispatch_fn,
    mesh_dp_info,
    register,
)


class Basic(Worker):
    """Calls without batches."""

    def __init__(self, base: int = 0, *, fail_on: int | None = None) -> None:
        super().__init__()
        if self.rank == fail_on:
            raise ValueError(f"rank {self.rank} does not want to start")
        self.base = base

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def place(self) -> dict[str, Any]:
        return {
            "rank": self.rank,
            "world_size": self.world_size,
            "local_rank": self.local_rank,
            "local_world_size": self.local_world_size,
            "master": self.get_master_addr_port(),
            "pid": os.getpid(),
            "base": self.base,
            "extra": os.environ.get("GROUP_TEST_EXTRA"),
            "threads": os.environ.get("OMP_NUM_THREADS"),
        }

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, execute_mode=Execute.RANK_ZERO)
    def alone(self, value: int) -> int:
        return self.base + self.rank + value

    @register(dispatch_mode=Dispatch.ALL_TO_ALL)
    def spread(self, value: Any) -> tuple[int, Any]:
        return self.rank, value

    def unregistered(self, value: Any) -> tuple[int, Any]:
        return self.rank, value

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, blocking=False)
    def slow(self, seconds: float) -> int:
        time.sleep(seconds)
        return self.rank

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    async def coroutine(self, value: int) -> int:
        await asyncio.sleep(0.01)
        return self.rank + value

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def fail(self, rank: int) -> None:
        if self.rank == rank:
            raise KeyError(f"missing on {rank}")

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def double(self, batch: TensorDict) -> TensorDict:
        output = TensorDict({"y": batch["x"] * 2, "ragged": batch["ragged"]}, batch_size=batch.batch_size)
        output["uid"] = batch.get("uid")
        return output

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def checksum(self, weights: dict[str, torch.Tensor]) -> float:
        return float(weights["w"].sum())


class Sync(Worker):
    """The same without coroutines: Ray runs its calls in order on the main thread."""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def die(self, rank: int, linger_s: float = 0.0) -> int:
        if self.rank == rank:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(linger_s)
        return self.rank

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, blocking=False)
    def sleep(self, seconds: float) -> int:
        time.sleep(seconds)
        return self.rank

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def pid(self) -> int:
        return os.getpid()


class Parallel(Worker):
    """DP 2 x TP 2 over gloo, registered as mesh "actor"; TP rank 0 of each replica collects."""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def setup(self) -> tuple[int, bool]:
        init_process_group("gloo", timeout_s=60.0)
        self.mesh = make_mesh({"dp": 2, "tp": 2})
        dp_rank, is_collect = mesh_dp_info(self.mesh)
        self._register_dispatch_collect_info("actor", dp_rank=dp_rank, is_collect=is_collect)
        return dp_rank, is_collect

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn("actor"))
    def sum_over_tp(self, batch: TensorDict) -> TensorDict:
        """y = x summed over the TP ranks of the replica; a collective on every rank, also with 0 rows."""
        x = batch["x"].float().clone()
        torch.distributed.all_reduce(x, group=self.mesh["tp"].get_group())
        count = torch.tensor([float(batch.batch_size[0])])
        torch.distributed.all_reduce(count)
        output = TensorDict({"y": x}, batch_size=batch.batch_size)
        output["rows_seen"] = NonTensorData(count.item())
        return output

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def die_in_collective(self, rank: int) -> None:
        if self.rank == rank:
            os.kill(os.getpid(), signal.SIGKILL)
        torch.distributed.all_reduce(torch.ones(1))
