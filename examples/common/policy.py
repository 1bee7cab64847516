"""The trained policy of one rank: its shard of the model, and the two kinds of updates."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist

from examples.common.batching import PaddedBatch
from examples.common.losses import entropy, policy_loss, token_log_probs
from examples.common.metrics import Metrics
from examples.common.model import ModelConfig, Transformer
from examples.common.parallel import sum_over
from examples.common.tensor_parallel import TensorParallel
from examples.common.trained_model import TrainedModel
from examples.common.weights import StateDict, shard_state


@dataclass(frozen=True)
class PolicyObjective:
    """Coefficients of the clipped surrogate and of the divergence from the reference."""

    clip_ratio_low: float
    clip_ratio_high: float
    kl_loss_coef: float
    temperature: float


@dataclass(frozen=True)
class PolicyTargets:
    """Per response token, float32 ``[rows, response]``, in the order of the padded batch."""

    old_log_probs: torch.Tensor
    ref_log_prob: torch.Tensor
    advantages: torch.Tensor

    def slice(self, rows: slice) -> PolicyTargets:
        """Some of the rows (views)."""
        return PolicyTargets(self.old_log_probs[rows], self.ref_log_prob[rows], self.advantages[rows])


class ShardedPolicy(TrainedModel):
    """A policy: the log-probabilities it gives, and the two ways of training it."""

    def __init__(
        self, config: ModelConfig, state: StateDict, tp: TensorParallel, dp_group: dist.ProcessGroup | None
    ) -> None:
        super().__init__(Transformer(config, tp), tp, dp_group)
        self.model.load_state_dict(shard_state(state, config, tp))

    def log_probs(
        self, batch: PaddedBatch, temperature: float, micro_batch_size: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probabilities and entropies of the response tokens, float32 ``[rows, response]``, without gradients."""
        log_probs = torch.empty(batch.responses.shape)
        entropies = torch.empty(batch.responses.shape)
        with torch.no_grad():
            for start in range(0, len(batch.responses), micro_batch_size):
                rows = slice(start, start + micro_batch_size)
                logits = self.response_outputs(batch.slice(rows))
                log_probs[rows] = token_log_probs(logits, batch.responses[rows], temperature)
                entropies[rows] = entropy(logits)
        return log_probs, entropies

    def supervised_step(self, batch: PaddedBatch, lr: float) -> Metrics:
        """One step on the cross-entropy of the responses, averaged over the tokens of all ranks."""
        tokens = sum_over(batch.response_mask.sum().float().reshape(1), self.dp_group)
        losses = -token_log_probs(self.response_outputs(batch), batch.responses) * batch.response_mask
        norm = self.step(losses.sum() / tokens, lr)
        mean = sum_over(losses.detach().sum().reshape(1), self.dp_group) / tokens
        return {"loss": float(mean), "grad_norm": norm}

    def policy_step(self, batch: PaddedBatch, targets: PolicyTargets, objective: PolicyObjective, lr: float) -> Metrics:
        """One step on the GRPO objective, averaged over the tokens of all ranks."""
        logits = self.response_outputs(batch)
        loss = policy_loss(
            token_log_probs(logits, batch.responses, objective.temperature),
            targets.old_log_probs,
            targets.ref_log_prob,
            targets.advantages,
            batch.response_mask,
            clip_ratio_low=objective.clip_ratio_low,
            clip_ratio_high=objective.clip_ratio_high,
            kl_loss_coef=objective.kl_loss_coef,
        )
        tokens = sum_over(batch.response_mask.sum().float().reshape(1), self.dp_group)
        norm = self.step(loss.loss / tokens, lr)
        sums = torch.stack([loss.loss.detach(), loss.clipped.float(), loss.divergence])
        mean = (sum_over(sums, self.dp_group) / tokens).tolist()
        return {"loss": mean[0], "clip_fraction": mean[1], "kl": mean[2], "grad_norm": norm}
