"""The reward rank: scores answers with reasoning-gym and turns scores into advantages."""

from __future__ import annotations

from tensordict import TensorDict

from examples.common.batching import jagged_like, lengths_of, pad_right, strings_of
from examples.common.losses import group_advantages, reward_to_go
from examples.common.score_worker import ScoreWorker
from examples.grpo.config import GrpoConfig
from examples.grpo.traffic import TrafficLog
from transferqueue.workers import Dispatch, register


class RewardWorker(ScoreWorker):
    """Stages `reward` and `adv`. Groups lie in consecutive rows, so that every shard has whole ones."""

    config: GrpoConfig

    def __init__(self, config: GrpoConfig) -> None:
        super().__init__(config)
        self.traffic = TrafficLog()

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def compute_advantage(self, batch: TensorDict) -> TensorDict:
        """`token_level_rewards`, `advantages` and `returns`, jagged float32 like `rm_scores`.

        A response's advantage (its score against those of its group) stands on each of its tokens.
        """
        lengths = lengths_of(batch["rm_scores"])
        rewards = pad_right(batch["rm_scores"], self.config.data.max_response_length)
        advantages = group_advantages(
            rewards.sum(dim=1),
            strings_of(batch, "uid"),
            self.config.actor_rollout_ref.rollout.n,
            norm_by_std=self.config.algorithm.norm_adv_by_std_in_grpo,
        )
        return TensorDict(
            {
                # The divergence from the reference is a term of the loss here, not of the reward.
                "token_level_rewards": jagged_like(rewards, lengths),
                "advantages": jagged_like(advantages.unsqueeze(1).expand_as(rewards), lengths),
                "returns": jagged_like(reward_to_go(rewards), lengths),
            },
            batch_size=batch.batch_size,
        )

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def take_traffic(self) -> dict[str, int]:
        """What this rank's bridged calls read and wrote through shared memory since the last call."""
        return self.traffic.take()
