"""The reward rank, a process without a model: scores, the price of divergence, advantages."""

from __future__ import annotations

import torch
import torch.distributed as dist
from tensordict import NonTensorData, TensorDict

from examples.common.batching import jagged_like, lengths_of, pad_right, strings_of
from examples.common.losses import group_advantages, reward_to_go
from examples.common.parallel import sum_over
from examples.common.score_worker import ScoreWorker
from examples.ppo.advantages import gae, moments, penalised_rewards, whiten
from examples.ppo.config import PpoConfig
from transferqueue.workers import Dispatch, init_process_group, register


class RewardWorker(ScoreWorker):
    """Stages `reward` and `adv`. Groups lie in consecutive rows, so that every shard has whole ones."""

    config: PpoConfig

    def __init__(self, config: PpoConfig) -> None:
        super().__init__(config)
        self._group: dist.ProcessGroup | None = None
        if self.world_size > 1:
            init_process_group("gloo")
            self._group = dist.group.WORLD

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO, blocking=False)
    def compute_rm_score(self, batch: TensorDict) -> TensorDict:
        """The scores of `ScoreWorker`, without making the controller wait: the actor works meanwhile."""
        return super().compute_rm_score(batch)

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def compute_advantage(self, batch: TensorDict) -> TensorDict:
        """`token_level_rewards`, `advantages` and `returns`, jagged float32 like `rm_scores`.

        Reads `rm_scores`, `old_log_probs`, `ref_log_prob` and `values` (without a critic `uid`), and `kl_coef` from
        the batch's extra_info. Advantages are whitened over the rows of all ranks, which meet for it.
        """
        algorithm, width = self.config.algorithm, self.config.data.max_response_length
        lengths = lengths_of(batch["rm_scores"])
        mask = torch.arange(width) < lengths.unsqueeze(1)
        scores, old, ref = (pad_right(batch[name], width) for name in ("rm_scores", "old_log_probs", "ref_log_prob"))
        rewards, divergence = penalised_rewards(scores, old, ref, mask, float(batch["kl_coef"]))
        if self.config.needs_critic:
            values = pad_right(batch["values"], width)
            advantages, returns = gae(rewards, values, mask, algorithm.gamma, algorithm.lam)
        else:
            n = self.config.actor_rollout_ref.rollout.n
            per_row = group_advantages(rewards.sum(dim=1), strings_of(batch, "uid"), n, norm_by_std=True)
            advantages, returns = per_row.unsqueeze(1).expand_as(rewards), reward_to_go(rewards)
        if algorithm.whiten_advantages:
            advantages = whiten(advantages, mask, sum_over(moments(advantages, mask), self._group))
        return TensorDict(
            {
                "token_level_rewards": jagged_like(rewards, lengths),
                "advantages": jagged_like(advantages, lengths),
                "returns": jagged_like(returns, lengths),
                "kl/per_response": NonTensorData(float(divergence.sum(dim=1).mean())),
                "return/mean": NonTensorData(float(returns[:, 0].mean())),
            },
            batch_size=batch.batch_size,
        )
