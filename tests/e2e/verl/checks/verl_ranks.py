"""A worker class for verl's worker group: module level, so that ranks import it."""

from __future__ import annotations

import asyncio
from typing import Any

import ray
import torch
from tensordict import TensorDict
from verl.single_controller.base import Worker
from verl.single_controller.base.decorator import Dispatch, make_nd_compute_dataproto_dispatch_fn, register
from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup
from verl.utils import tensordict_utils as tu


def worker_group(cls: type, *, world_size: int, **arguments: Any) -> RayWorkerGroup:
    pool = RayResourcePool(process_on_nodes=[world_size], use_gpu=False, max_colocate_count=1)
    return RayWorkerGroup(
        resource_pool=pool, ray_cls_with_init=RayClassWithInitArgs(cls=ray.remote(cls), **arguments), device_name="cpu"
    )


class ActorRank(Worker):
    """Computes on CPU what an actor of verl would compute on a GPU: one value per token.

    With a coroutine among its methods it is an asynchronous Ray actor, as verl's own actor worker is.
    """

    def __init__(self, tp_size: int) -> None:
        super().__init__()
        self.tp_rank = self.rank % tp_size
        self._register_dispatch_collect_info("actor", dp_rank=self.rank // tp_size, is_collect=self.tp_rank == 0)
        self._register_dispatch_collect_info("flat", dp_rank=self.rank, is_collect=True)

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="actor"))
    def compute_log_prob(self, data: TensorDict) -> TensorDict:
        """-token / temperature per token; ranks that must not collect would store something else."""
        tokens = data["input_ids"]
        log_probs = torch.nested.nested_tensor_from_jagged(
            -tokens.values().float() / tu.get(data, "temperature") - 1000.0 * self.tp_rank, tokens.offsets()
        )
        seen = {"rank": self.rank, "rows": len(data), "fields": sorted(str(key) for key in data.keys())}
        # A rank owns what it read: it scribbles over it, and nobody else may notice.
        tokens.values().fill_(-1)
        return tu.get_tensordict({"log_probs": log_probs}, {"metrics": seen})

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="flat"))
    def compute_score(self, data: TensorDict) -> TensorDict:
        """One score per row (dense), strings and dicts (not tensors), and nothing for the controller."""
        lengths = data["responses"].offsets().diff()
        uids = [str(uid) for uid in data.pop("uid").tolist()]
        judges = [f"judge of {uid}" for uid in uids]
        notes = [{"rank": self.rank, "uid": uid} for uid in uids]
        return tu.get_tensordict({"score": lengths.float(), "judge": judges, "note": notes})

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="actor"), blocking=False)
    async def infer_batch(self, data: TensorDict) -> TensorDict:
        await asyncio.sleep(0.01)
        tokens = data["input_ids"]
        values = torch.nested.nested_tensor_from_jagged(tokens.values() * 0.5, tokens.offsets())
        return tu.get_tensordict({"values": values})

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="actor"))
    def update_actor(self, data: TensorDict) -> TensorDict:
        """No batch comes back, only metrics of the ranks that collect."""
        total = int(sum(int(row.sum()) for row in data["responses"].unbind(0)))
        kwargs = tu.get(data, "dataloader_kwargs")
        return tu.get_tensordict({}, {"metrics": {"tokens": total, "rows": len(data), "kwargs": kwargs}})

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def row_sums(self, data: TensorDict) -> list[int]:
        """Metadata to every rank, something else than a batch back."""
        return [int(row.sum()) for row in data["input_ids"].unbind(0)]
