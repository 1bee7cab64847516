"""Worker classes of the tests of futures: module level, so that ranks import them."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import torch
from tensordict import NonTensorData, TensorDict

from transferqueue.workers import DataProto, Dispatch, Worker, make_nd_compute_dataproto_dispatch_fn, register

ACTOR = make_nd_compute_dataproto_dispatch_fn("actor")


class Methods(Worker):
    """Three ranks; in the mesh "actor" the first two are one replica, of which rank 0 collects."""

    def __init__(self) -> None:
        super().__init__()
        self._register_dispatch_collect_info("actor", dp_rank=self.rank // 2, is_collect=self.rank != 1)

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO, blocking=False)
    def proto(self, data: DataProto, wait_s: float = 0.0) -> DataProto:
        time.sleep(data.meta_info.get("wait_s", 0.0))
        return DataProto.from_dict(
            {"x": data.batch["x"] + 1}, {"rank": [self.rank] * len(data)}, {"metrics": {"rank": self.rank}}
        )

    @register(dispatch_mode=ACTOR, blocking=False)
    def stored(self, batch: TensorDict) -> TensorDict:
        """Metadata in, metadata out."""
        time.sleep(0.2)
        output = TensorDict({"y": batch["x"] + 1}, batch.batch_size)
        output["metrics"] = NonTensorData({"rank": self.rank})
        return output

    @register(dispatch_mode=ACTOR, blocking=False)
    def stored_again(self, batch: TensorDict) -> TensorDict:
        return TensorDict({"z": batch["y"] * 10}, batch.batch_size)

    @register(dispatch_mode=ACTOR)
    def written_for_protos(self, data: DataProto) -> DataProto:
        assert isinstance(data, DataProto)
        made = DataProto.from_dict({"w": data.batch["x"] + data.meta_info.get("add", 0)})
        made.non_tensor_batch["tag"] = data.non_tensor_batch["uid"]
        made.meta_info["metrics"] = {"rows": len(data), "rank": self.rank}
        return made

    @register(dispatch_mode=ACTOR)
    def mean(self, batch: TensorDict) -> list[float]:
        return [self.rank, batch["x"].float().mean().item()]

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO, blocking=False, auto_padding=True)
    def padded(self, data: DataProto) -> DataProto:
        return DataProto.from_dict({"x": data.batch["x"], "rows": torch.full((len(data),), len(data))})

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO, blocking=False)
    def fails_on_one(self, data: DataProto) -> DataProto:
        if self.rank == 1:
            raise ValueError("broken on purpose")
        return data

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def rows(self, data: DataProto, other: DataProto | None = None) -> list[Any]:
        return [data.batch["x"].tolist(), None if other is None else other.batch["x"].tolist()]

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def whole(self, data: DataProto) -> int:
        return len(data)

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO, materialize_futures=False)
    def handed(self, future: Any) -> tuple[str, list[int]]:
        return type(future).__name__, future.get().batch["x"].tolist()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, blocking=False)
    def listed(self, value: int) -> int:
        return self.rank + value


class Mixed(Worker):
    """Coroutine methods and others, blocking or not: they share the event loop of their rank."""

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    async def async_blocking(self, data: DataProto) -> DataProto:
        await asyncio.sleep(0.01)
        return DataProto.from_dict({"x": data.batch["x"] + 1})

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO, blocking=False)
    async def async_later(self, data: DataProto) -> DataProto:
        await asyncio.sleep(0.2)
        return DataProto.from_dict({"x": data.batch["x"] + 1})

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def sync_blocking(self, data: DataProto) -> DataProto:
        return DataProto.from_dict({"x": data.batch["x"] + 1})

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO, blocking=False)
    def sync_later(self, data: DataProto) -> DataProto:
        return DataProto.from_dict({"x": data.batch["x"] + 1})

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    async def async_stored(self, data: DataProto) -> DataProto:
        await asyncio.sleep(0)
        return DataProto.from_dict({"v": data.batch["x"] * 2})
