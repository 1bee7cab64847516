"""An actor rank: policy, rollout and reference in one process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from tensordict import TensorDict

from examples.common.policy_worker import MESH, PolicyWorker
from examples.common.responses import sample_responses
from examples.ppo.config import PpoConfig
from transferqueue.workers import make_nd_compute_dataproto_dispatch_fn, register

WEIGHTS = "weights"
"""The entry of extra_info that says whose log-probabilities are wanted: "policy" (also without it) or "reference"."""

_BY_MESH = make_nd_compute_dataproto_dispatch_fn(mesh_name=MESH)


class ActorRolloutRefWorker(PolicyWorker):
    """The trained policy; it samples with the weights that it trains, so that none have to be brought anywhere.

    The reference is a second model with a method of its own, `compute_ref_log_prob`. With `trainer.reference` switched
    it is a second set of weights, which takes the place of the first while `compute_log_prob` is called for it.
    """

    config: PpoConfig

    @register(dispatch_mode=_BY_MESH)
    def generate_sequences(self, batch: TensorDict) -> TensorDict:
        """Samples one response for each row of `prompts`; `temperature` and `seed` stand in the batch's extra_info.

        Adds `responses` (jagged int64, eos included), `attention_mask` and `position_ids`.
        """
        # A stream for each replica: its tensor parallel ranks draw alike, and a layout always draws the same.
        generator = torch.Generator().manual_seed(int(batch["seed"]) * 1009 + self.place.dp_rank)
        width = self.config.data.max_response_length
        return sample_responses(self.policy.model, batch, width, float(batch["temperature"]), generator)

    @register(dispatch_mode=_BY_MESH)
    def compute_log_prob(self, batch: TensorDict) -> TensorDict:
        """`old_log_probs` of the policy, or `ref_log_prob` when extra_info asks for the reference."""
        if WEIGHTS not in batch.keys() or batch[WEIGHTS] != "reference":
            return super().compute_log_prob(batch)
        micro_batch_size = self.config.actor_rollout_ref.ref.log_prob_micro_batch_size_per_rank
        with self._reference_weights():
            return self._log_probs(self.policy, batch, "ref_log_prob", micro_batch_size)

    def _freeze_reference(self) -> None:
        if self.config.trainer.reference == "inside":
            super()._freeze_reference()
        else:
            self._frozen = [weight.detach().clone() for weight in self.policy.model.parameters()]

    @contextmanager
    def _reference_weights(self) -> Iterator[None]:
        weights = list(self.policy.model.parameters())
        trained = [weight.data for weight in weights]
        for weight, frozen in zip(weights, self._frozen, strict=True):
            weight.data = frozen
        try:
            yield
        finally:
            for weight, data in zip(weights, trained, strict=True):
                weight.data = data
