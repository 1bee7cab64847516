"""The reward rank: scores answers with reasoning-gym and turns scores into advantages."""

from __future__ import annotations

import torch
from tensordict import NonTensorData, TensorDict

from examples.grpo.batching import jagged_like, lengths_of, pad_right
from examples.grpo.config import GrpoConfig
from examples.grpo.demonstrations import final_answer
from examples.grpo.losses import group_advantages, reward_to_go
from examples.grpo.task import ChainSumTask, task_config_of
from examples.grpo.tokenizer import CharTokenizer
from examples.grpo.traffic import TrafficLog, strings_of
from transferqueue.workers import Dispatch, Worker, register


class RewardWorker(Worker):
    """Stages `reward` and `adv`. Groups lie in consecutive rows, so that every shard has whole ones."""

    def __init__(self, config: GrpoConfig) -> None:
        torch.set_num_threads(1)
        self.config = config
        self.task = ChainSumTask(task_config_of(config.data))
        self.tokenizer = CharTokenizer()
        self.traffic = TrafficLog()

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def compute_rm_score(self, batch: TensorDict) -> TensorDict:
        """`rm_scores`: jagged float32 like `responses`, the score on the last token, 0 before it."""
        responses = batch["responses"]
        texts = self.tokenizer.decode_batch([row.tolist() for row in responses.unbind()])
        truths = strings_of(batch, "ground_truth")
        scores = [self.task.score(final_answer(text), truth) for text, truth in zip(texts, truths, strict=True)]
        lengths = lengths_of(responses)
        return TensorDict(
            {
                "rm_scores": score_on_last_token(torch.tensor(scores), lengths),
                "reward/mean": NonTensorData(_mean(scores)),
                "reward/accuracy": NonTensorData(_mean([score == 1.0 for score in scores])),
                "response/worked_share": NonTensorData(_mean(["=" in text for text in texts])),
                "response/length": NonTensorData(float(lengths.double().mean())),
            },
            batch_size=batch.batch_size,
        )

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


def score_on_last_token(scores: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Float32 jagged rows of these lengths: the score at the end, 0 elsewhere."""
    width = int(lengths.max()) if len(lengths) else 0
    padded = torch.zeros(len(scores), width)
    padded[torch.arange(len(scores)), lengths - 1] = scores.float()
    return jagged_like(padded, lengths)


def _mean(values: list[float] | list[bool]) -> float:
    return sum(values) / len(values) if values else 0.0
