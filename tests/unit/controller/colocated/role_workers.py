"""Worker classes for tests of colocated roles: module level, so that ranks import them."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import torch
from tensordict import TensorDict

from transferqueue.workers import Dispatch, Worker, make_nd_compute_dataproto_dispatch_fn, register


class Actor(Worker):
    def __init__(self, scale: int = 2, *, name: str = "actor") -> None:
        super().__init__()
        self.scale = scale
        self.name = name

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def place(self) -> dict[str, Any]:
        """Where this rank is."""
        return {
            "name": self.name,
            "rank": self.rank,
            "world_size": self.world_size,
            "local_rank": self.local_rank,
            "local_world_size": self.local_world_size,
            "master": self.get_master_addr_port(),
            "pid": os.getpid(),
        }

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def rollout_update(self) -> str:
        return f"{self.name}: rollout_update"

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def scaled(self, batch: TensorDict) -> TensorDict:
        return TensorDict({"y": batch["x"] * self.scale}, batch_size=batch.batch_size)

    def unregistered(self, value: int) -> int:
        return value + self.scale


class Rollout(Worker):
    """Role "actor_rollout" of this class and role "actor" of the other have names that begin alike."""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def update(self) -> str:
        return "rollout: update"

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def scale_of_actor(self) -> int:
        return int(self.fused_worker_dict["actor"].scale)


class AsyncRollout(Worker):
    def __init__(self) -> None:
        super().__init__()
        self.free = asyncio.Event()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, blocking=False)
    async def wait_to_be_let_go(self) -> str:
        await self.free.wait()
        return "free"

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    async def let_go(self) -> int:
        self.free.set()
        return self.rank

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    async def generate(self, value: int) -> tuple[int, int]:
        return self.rank, value

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def plain(self, value: int) -> int:
        return value


class Broken(Worker):
    def __init__(self) -> None:
        super().__init__()
        raise FileNotFoundError("no checkpoint at step 3")

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def update(self) -> None: ...


class Meshed(Worker):
    """Two ranks, each a replica; `swapped`: rank 1 works on the first shard."""

    def __init__(self, *, swapped: bool = False) -> None:
        super().__init__()
        self._register_dispatch_collect_info("mesh", dp_rank=1 - self.rank if swapped else self.rank, is_collect=True)

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn("mesh"))
    def which_rank(self, batch: TensorDict) -> TensorDict:
        rows = batch.batch_size[0]
        return TensorDict({"x": batch["x"], "rank": torch.full((rows,), self.rank)}, batch_size=[rows])


class Plain:
    """Not a `Worker`."""

    def __init__(self, value: int) -> None:
        self.value = value

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def add(self, value: int) -> int:
        return self.value + value
