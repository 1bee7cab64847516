"""Worker classes of the field cases."""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed as dist
from tensordict import NonTensorData, TensorDict

import transferqueue as tq
from transferqueue.workers import Dispatch, Worker, make_nd_compute_dataproto_dispatch_fn, register


class Shard(Worker):
    """Ranks of DP x TP `tp_size`, mesh "train"; TP rank 0 of each replica collects. `seen` keeps what each call got."""

    tp_size = 1

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[list[int]] = []
        self._register_dispatch_collect_info(
            "train", dp_rank=self.rank // self.tp_size, is_collect=self.rank % self.tp_size == 0
        )

    def plus_one(self, batch: TensorDict) -> TensorDict:
        self.seen.append(batch["x"].tolist())
        return TensorDict({"y": batch["x"] + 1}, batch_size=batch.batch_size)

    over_ranks = register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)(plus_one)
    over_mesh = register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn("train"))(plus_one)
    padded_over_ranks = register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO, auto_padding=True)(plus_one)
    padded_over_mesh = register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn("train"), auto_padding=True)(
        plus_one
    )

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn("train"))
    def roll_out(self, batch: TensorDict) -> Any:
        """Trajectories of prompts: `count` of them each, 0 included, as new rows that name their prompt. One put: the
        trajectories of a prompt appear together or not at all."""
        prompts = [index for index, n in enumerate(batch["count"].tolist()) for _ in range(n)]
        if not prompts:
            return None
        rows = torch.tensor(prompts)
        fields = TensorDict({"prompt_index": batch["index"][rows], "response": batch["x"][rows] * 10}, [len(prompts)])
        return tq.get_client().put(fields, partition_id="trajectories")


class TensorParallel(Shard):
    """Two ranks a replica."""

    tp_size = 2


class Collective(TensorParallel):
    """Every call runs collectives over the replica and over all ranks, whether a rank has rows or not."""

    def setup(self) -> None:
        dist.init_process_group(
            "gloo", init_method=os.environ["FIELD_CASE_RENDEZVOUS"], rank=self.rank, world_size=self.world_size
        )
        pairs = [dist.new_group([first, first + 1]) for first in range(0, self.world_size, 2)]
        self.replica = pairs[self.rank // 2]

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn("train"))
    def sum_over_replica(self, batch: TensorDict) -> TensorDict:
        total = batch["x"].clone()
        dist.all_reduce(total, group=self.replica)
        ranks_in_the_call = torch.ones(())
        dist.all_reduce(ranks_in_the_call)
        output = TensorDict({"y": total}, batch_size=batch.batch_size)
        output["ranks_in_the_call"] = NonTensorData(int(ranks_in_the_call))
        return output
