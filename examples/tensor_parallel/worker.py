"""A rank that holds a part of one replica of a transformer."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from tensordict import TensorDict

from examples.common.batching import jagged_like, join, lengths_of
from examples.common.mesh_place import join_mesh
from examples.common.model import ModelConfig
from examples.common.policy import ShardedPolicy
from examples.common.tokenizer import PAD_ID
from examples.common.weights import initial_state
from transferqueue.workers import Dispatch, Worker, make_nd_compute_dataproto_dispatch_fn, register

MESH = "model"


@dataclass(frozen=True)
class Seen:
    """What a rank says of itself: its place, how much of the model it holds, and the rows of the last call."""

    rank: int
    dp_rank: int
    tp_rank: int
    collects: bool
    parameters: int
    row_ids: list[int]


class ModelRank(Worker):
    """The ranks of a replica get the same rows and compute together: each layer ends in a sum over them.

    All of them then hold the same result. One, which the collect mask names, stores it; its metadata is what the group
    returns. The others store nothing.
    """

    def __init__(self, config: ModelConfig, dp_size: int, tp_size: int, seed: int) -> None:
        torch.set_num_threads(1)
        place = join_mesh(dp_size, tp_size)
        # This is all that dispatch and collect go by: which shard this rank works on, and whether it answers for it.
        self._register_dispatch_collect_info(MESH, dp_rank=place.dp_rank, is_collect=place.is_collect)
        self.place = place
        self.policy = ShardedPolicy(config, initial_state(config, seed, 0.2), place.tp, place.dp_group)
        self.row_ids: list[int] = []

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name=MESH))
    def score(self, batch: TensorDict) -> TensorDict:
        """`log_probs` float32, jagged like `responses`: how likely the model finds each of their tokens."""
        self.row_ids = batch["row"].tolist()
        return log_probs_of(self.policy, batch)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def seen(self) -> Seen:
        """This rank's place and what its last call got."""
        parameters = sum(parameter.numel() for parameter in self.policy.model.parameters())
        place = self.place
        return Seen(self.rank, place.dp_rank, place.tp.rank, place.is_collect, parameters, self.row_ids)


def log_probs_of(policy: ShardedPolicy, batch: TensorDict) -> TensorDict:
    """The log-probability of each response token; every tensor parallel rank of a replica calls it."""
    responses = batch["responses"]
    lengths = lengths_of(responses)
    width = int(lengths.max())
    padded = join(batch["prompts"], batch["prompts"] != PAD_ID, responses, width)
    found, _ = policy.log_probs(padded, temperature=1.0, micro_batch_size=len(lengths))
    return TensorDict({"log_probs": jagged_like(found, lengths)}, batch_size=batch.batch_size)
