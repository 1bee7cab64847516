"""Worker classes of the contract suite: module level, so that ranks import them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from tensordict import NonTensorData, TensorDict

from transferqueue.workers import (
    Dispatch,
    Execute,
    Worker,
    make_nd_compute_dataproto_dispatch_fn,
    register,
)

MESH = make_nd_compute_dataproto_dispatch_fn("actor")


class Calm(Worker):
    """DP 2 x TP 2 for the mesh "actor", when there are four ranks; rank 0 and rank 2 collect."""

    def __init__(self, base: int = 0, *, own: Any = None) -> None:
        super().__init__()
        self.base = base
        self.own = own
        self.order: list[int] = []
        self._register_dispatch_collect_info("actor", dp_rank=self.rank // 2, is_collect=self.rank % 2 == 0)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def place(self) -> dict[str, Any]:
        """Who this rank is.

        Says it as a dict.
        """
        return {"rank": self.rank, "world_size": self.world_size, "base": self.base, "own": self.own}

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, execute_mode=Execute.RANK_ZERO)
    def alone(self, value: int, *, factor: int = 1) -> int:
        return (self.base + self.rank + value) * factor

    @register(dispatch_mode=Dispatch.ALL_TO_ALL)
    def spread(self, value: Any) -> tuple[int, Any]:
        return self.rank, value

    def unregistered(self, value: Any) -> tuple[int, Any]:
        return self.rank, value

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, blocking=False)
    def slow(self, seconds: float, number: int = 0) -> int:
        time.sleep(seconds)
        self.order.append(number)
        return self.rank

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def orders(self) -> list[int]:
        found, self.order = self.order, []
        return found

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def fail(self, rank: int) -> None:
        if self.rank == rank:
            raise KeyError(f"missing on {rank}")

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def double(self, batch: TensorDict) -> TensorDict:
        return TensorDict({"y": batch["x"] * 2}, batch_size=batch.batch_size)

    @register(dispatch_mode=MESH)
    def on_mesh(self, batch: TensorDict) -> TensorDict:
        """y is x and the rank that computed it."""
        return TensorDict({"y": batch["x"] * 100 + self.rank}, batch_size=batch.batch_size)


class Mortal(Worker):
    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def leave(self, rank: int) -> int:
        if self.rank == rank:
            print(f"rank {rank} says goodbye", file=sys.stderr, flush=True)
            sys.exit(3)
        return self.rank

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, blocking=False)
    def leave_later(self, rank: int, seconds: float) -> None:
        if self.rank == rank:
            time.sleep(seconds)
            sys.exit(3)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def here(self) -> int:
        return self.rank


class Refusing(Worker):
    def __init__(self, rank: int) -> None:
        super().__init__()
        if self.rank == rank:
            raise ValueError(f"rank {rank} does not want to start")


class Plain:
    """No `Worker` at all; with coroutine methods, so that calls on one rank interleave."""

    def __init__(self, name: str = "plain") -> None:
        self.name = name
        self.opened = asyncio.Event()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def greet(self, whom: str) -> str:
        return f"{self.name} greets {whom}"

    def left_greet(self, whom: str) -> str:
        return f"left {whom}"

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, blocking=False)
    async def wait_for_open(self) -> str:
        await asyncio.wait_for(self.opened.wait(), 30.0)
        return "open"

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    async def open(self) -> None:
        self.opened.set()


class Hiding(Worker):
    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def world_size_of(self) -> int:
        return 1

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def execute_all(self) -> int:
        return 1


class Reporter(Worker):
    """Says what Ray knows of it, and takes rows."""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def title(self) -> str:
        """What `ps`, and Ray's dashboard, show while it runs."""
        return _title()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def ray_facts(self) -> dict[str, Any]:
        import ray

        context = ray.get_runtime_context()
        return {
            "name": context.get_actor_name(),
            "resources": context.get_assigned_resources(),
            "node_id": context.get_node_id(),
            "devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
            "pid": os.getpid(),
            "extra": os.environ.get("GROUP_TEST_EXTRA"),
        }

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def plus_one(self, batch: TensorDict) -> TensorDict:
        output = TensorDict({"y": batch["x"] + 1}, batch_size=batch.batch_size)
        output["title"] = NonTensorData(_title())
        return output

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, blocking=False)
    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def die(self, rank: int) -> None:
        if self.rank == rank:
            print("about to end", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(30.0)


def _title() -> str:
    return Path("/proc/self/cmdline").read_bytes().rstrip(b"\0").decode()
