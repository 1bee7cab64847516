"""The configuration: its schema, `config.yaml` with the values, and dotted overrides from the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from omegaconf import MISSING

from examples.common.config import (
    OptimConfig,
    PolicyConfig,
    TrainerSection,
    check_policy_config,
    divides,
    load_file,
    one_of,
)

DEFAULT_FILE = Path(__file__).with_name("config.yaml")


@dataclass
class KlControlConfig:
    """How much a response pays for its divergence from the reference; "adaptive" steers towards `target_kl` nats."""

    type: str = MISSING
    kl_coef: float = MISSING
    target_kl: float = MISSING
    horizon: int = MISSING


@dataclass
class AlgorithmConfig:
    """How scores become advantages: "gae" needs the critic, "grpo" compares `rollout.n` answers to one prompt."""

    adv_estimator: str = MISSING
    gamma: float = MISSING
    lam: float = MISSING
    whiten_advantages: bool = MISSING
    kl_ctrl: KlControlConfig = MISSING


@dataclass
class CriticConfig:
    """The value model, which starts from the policy's weights; the mini-batch is in prompts."""

    ppo_mini_batch_size: int = MISSING
    ppo_epochs: int = MISSING
    cliprange_value: float = MISSING
    grad_clip: float = MISSING
    warm_up_steps: int = MISSING
    optim: OptimConfig = MISSING


@dataclass
class RewardConfig:
    """Processes that score; in the bundles of "global_pool", or `num_workers` of them in their own "reward_pool"."""

    pool: str = MISSING
    num_workers: int = MISSING


@dataclass
class TrainerConfig(TrainerSection):
    """The loop and what it runs on."""

    fused: bool = MISSING
    reference: str = MISSING


@dataclass
class PpoConfig(PolicyConfig):
    """All sections."""

    algorithm: AlgorithmConfig = MISSING
    critic: CriticConfig = MISSING
    reward: RewardConfig = MISSING
    trainer: TrainerConfig = MISSING

    @property
    def needs_critic(self) -> bool:
        """Whether there is a value model."""
        return self.algorithm.adv_estimator == "gae"

    @property
    def global_pool_size(self) -> int:
        """Processes that hold the actor and, when there is one, the critic."""
        actor = self.actor_rollout_ref.actor
        return actor.data_parallel_size * actor.tensor_parallel_size

    @property
    def reward_ranks(self) -> int:
        """Processes that score."""
        return self.reward.num_workers if self.reward.pool == "reward_pool" else self.global_pool_size


def load_config(overrides: Sequence[str] = (), file: Path = DEFAULT_FILE) -> PpoConfig:
    """The file with ``section.key=value`` overrides on top.

    Raises omegaconf's errors for unknown keys and wrong types, and `ValueError` for values that do not go together.
    """
    config = load_file(PpoConfig, file, overrides)
    check_config(config)
    return config


def check_config(config: PpoConfig) -> None:
    """`ValueError` naming the keys that do not go together."""
    one_of("algorithm.adv_estimator", config.algorithm.adv_estimator, ("gae", "grpo"))
    one_of("algorithm.kl_ctrl.type", config.algorithm.kl_ctrl.type, ("fixed", "adaptive"))
    one_of("reward.pool", config.reward.pool, ("global_pool", "reward_pool"))
    one_of("trainer.reference", config.trainer.reference, ("inside", "switched"))
    check_policy_config(config)
    ranks = "reward.num_workers" if config.reward.pool == "reward_pool" else "processes of the global_pool"
    # Whole groups in every shard, and shards of one size, so that the mean of their means is the mean.
    divides("data.train_batch_size", config.data.train_batch_size, ranks, config.reward_ranks)
    mini_batch = config.critic.ppo_mini_batch_size
    divides("data.train_batch_size", config.data.train_batch_size, "critic.ppo_mini_batch_size", mini_batch)
    mini_rows = mini_batch * config.actor_rollout_ref.rollout.n
    divides(
        "critic.ppo_mini_batch_size * rollout.n", mini_rows, "processes of the global_pool", config.global_pool_size
    )
    n = config.actor_rollout_ref.rollout.n
    if config.algorithm.adv_estimator == "grpo" and n < 2:
        raise ValueError(f"algorithm.adv_estimator=grpo compares answers to one prompt: rollout.n={n} is too few")
