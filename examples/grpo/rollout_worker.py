"""A rollout rank: the whole model, sampling responses for its shard of the prompts."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict

from examples.common.model import Transformer
from examples.common.model_setup import initial_state_of, model_config_of
from examples.common.responses import sample_responses
from examples.common.weights import unflatten_state
from examples.grpo.config import GrpoConfig
from examples.grpo.traffic import TrafficLog
from transferqueue.workers import Dispatch, Worker, make_nd_compute_dataproto_dispatch_fn, register

MESH = "rollout"


class RolloutWorker(Worker):
    """Stage `gen`, and the receiving end of the weights."""

    def __init__(self, config: GrpoConfig) -> None:
        torch.set_num_threads(1)
        self.config = config
        self.model_config = model_config_of(config)
        self.model = Transformer(self.model_config)
        self.model.load_state_dict(initial_state_of(config))
        self.traffic = TrafficLog()
        self._register_dispatch_collect_info(MESH, dp_rank=self.rank, is_collect=True)

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name=MESH))
    def generate_sequences(self, batch: TensorDict, *, temperature: float, seed: int) -> TensorDict:
        """Samples one response for each row of `prompts` (int64, padded on the left).

        Returns `responses` (jagged int64, eos included), `attention_mask` and `position_ids` (int64
        ``[rows, max_prompt_length + max_response_length]``, prompt and response side by side).
        """
        # Each rank draws from a stream of its own; the same seed gives the same responses for the same layout.
        generator = torch.Generator().manual_seed(seed * 1009 + self.rank)
        return sample_responses(self.model, batch, self.config.data.max_response_length, temperature, generator)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def load_weights(self, weights: TensorDict) -> None:
        """Takes over the actor's weights: one row, `parameters` float32 ``[1, number of parameters]``.

        The ranks of a node read the same pages; the only copy is the one into the model.
        """
        self.model.load_state_dict(unflatten_state(weights["parameters"][0], self.model_config))

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def take_traffic(self) -> dict[str, Any]:
        """What this rank's bridged calls read through shared memory since the last call."""
        return self.traffic.take()
