"""Worker classes of the data-plane tests: module level, so that ranks import them."""

from __future__ import annotations

import os
import signal
from typing import Any

import torch
from tensordict import NonTensorData, TensorDict

from transferqueue.workers import (
    Dispatch,
    Worker,
    alloc_outputs,
    async_alloc_outputs,
    make_nd_compute_dataproto_dispatch_fn,
    register,
    tqbridge,
)


def anonymous_kib() -> int:
    """Private memory of this process: what views cost when they are copied, and not when they are mapped."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon:"))


class PeakMemory:
    """The highest resident memory of this process, mapped pages included, from here on."""

    def __init__(self) -> None:
        with open("/proc/self/clear_refs", "w") as reset:
            reset.write("5")
        self._start = self._peak_nbytes()

    def grown_nbytes(self) -> int:
        return self._peak_nbytes() - self._start

    @staticmethod
    def _peak_nbytes() -> int:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:")) * 1024


class Stage(Worker):
    """DP 2 x TP 2: ranks 0 and 1 are one replica, 2 and 3 the other; TP rank 0 collects."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: Any = None
        if self.world_size == 4:
            self._register_dispatch_collect_info("actor", dp_rank=self.rank // 2, is_collect=self.rank % 2 == 0)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def environment(self) -> tuple[int, str | None]:
        return os.getpid(), os.environ.get("TRANSFERQUEUE_SESSION")

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def plus_one(self, batch: TensorDict) -> TensorDict:
        output = TensorDict({"y": batch["x"] + 1}, batch_size=batch.batch_size)
        output["rank"] = NonTensorData(self.rank)
        return output

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    async def plus_two(self, batch: TensorDict) -> TensorDict:
        return TensorDict({"w": batch["x"] + 2}, batch_size=batch.batch_size)

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn("actor"))
    def replica(self, batch: TensorDict) -> TensorDict:
        batch["x"] += 100  # in place, on every rank of the replica: a view of its own
        return TensorDict({"z": batch["x"], "label": batch.get("uid")}, batch_size=batch.batch_size)

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn("actor"), auto_padding=True)
    def padded(self, batch: TensorDict) -> TensorDict:
        rows = [torch.full((int(n) + 1,), int(n)) for n in batch["x"]]
        ragged = torch.nested.nested_tensor(rows, layout=torch.jagged)
        return TensorDict({"ragged": ragged, "rows": torch.full(batch.batch_size, len(batch["x"]))}, batch.batch_size)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def short(self, batch: TensorDict) -> TensorDict:
        return TensorDict({"y": batch["x"][:1]}, [1])

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def everything(self, batch: TensorDict) -> dict[str, Any]:
        return {"fields": sorted(batch.keys()), "x": batch["x"].tolist(), "temperature": batch["temperature"]}

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def nothing(self, batch: TensorDict) -> None:
        return None

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def empty_call(self) -> None:
        return None

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def touch_large(self, batch: TensorDict) -> dict[str, Any]:
        before_kib, peak = anonymous_kib(), PeakMemory()
        total = float(batch["large"].sum())
        return {"total": total, "grown_kib": anonymous_kib() - before_kib, "peak_nbytes": peak.grown_nbytes()}

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn("actor"))
    def in_place(self, batch: TensorDict) -> TensorDict:
        """The same code on ranks that collect and on those that do not."""
        out = alloc_outputs({"logits": ((3,), torch.float32), ("in", "n"): ((), torch.int64)})
        out["logits"].copy_(batch["x"][:, None].expand(-1, 3))
        out["in", "n"].copy_(batch["x"])
        out["label"] = batch.get("uid")
        return out

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    async def in_place_later(self, batch: TensorDict) -> TensorDict:
        out = await async_alloc_outputs({"later": ((), torch.int64)})
        out["later"].copy_(batch["x"])
        return out

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def raise_with_room(self, batch: TensorDict) -> None:
        self.kept = alloc_outputs({"logits": ((1024,), torch.float32)})
        raise ValueError("no")

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def die_with_room(self, batch: TensorDict) -> None:
        alloc_outputs({"logits": ((1024,), torch.float32)})["logits"].fill_(1)
        os.kill(os.getpid(), signal.SIGKILL)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def drop_kept(self) -> None:
        self.kept = None


class Plain:
    """No Worker, no group: a plain Ray actor whose methods are bridged."""

    @tqbridge()
    def plus_one(self, batch: TensorDict) -> TensorDict:
        return TensorDict({"plain": batch["x"] + 1}, batch_size=batch.batch_size)

    @tqbridge()
    async def plus_two(self, batch: TensorDict) -> TensorDict:
        return TensorDict({"plain2": batch["x"] + 2}, batch_size=batch.batch_size)
