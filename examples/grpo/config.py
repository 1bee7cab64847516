"""The configuration: its schema, `config.yaml` with the values, and dotted overrides from the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from omegaconf import MISSING

from examples.common.config import PolicyConfig, TrainerSection, check_policy_config, divides, load_file, one_of

DEFAULT_FILE = Path(__file__).with_name("config.yaml")


@dataclass
class AlgorithmConfig:
    """How scores become advantages."""

    adv_estimator: str = MISSING
    norm_adv_by_std_in_grpo: bool = MISSING


@dataclass
class RewardConfig:
    """Ranks that score answers and compute advantages."""

    num_workers: int = MISSING


@dataclass
class TrainerConfig(TrainerSection):
    """The loop, what it runs on and what it leaves behind."""

    passing: str = MISSING
    compare_steps: int = MISSING
    nodes: int = MISSING


@dataclass
class GrpoConfig(PolicyConfig):
    """All sections."""

    algorithm: AlgorithmConfig = MISSING
    reward: RewardConfig = MISSING
    trainer: TrainerConfig = MISSING


def load_config(overrides: Sequence[str] = (), file: Path = DEFAULT_FILE) -> GrpoConfig:
    """The file with ``section.key=value`` overrides on top.

    Raises omegaconf's errors for unknown keys and wrong types, and `ValueError` for values that do not go together.
    """
    config = load_file(GrpoConfig, file, overrides)
    check_config(config)
    return config


def check_config(config: GrpoConfig) -> None:
    """`ValueError` naming the keys that do not go together."""
    one_of("trainer.passing", config.trainer.passing, ("metadata", "batch"))
    one_of("trainer.nodes", config.trainer.nodes, (1, 3))
    one_of("algorithm.adv_estimator", config.algorithm.adv_estimator, ("grpo",))
    check_policy_config(config)
    divides(
        "data.train_batch_size * rollout.n",
        config.train_rows,
        "rollout.data_parallel_size",
        config.actor_rollout_ref.rollout.data_parallel_size,
    )
    divides("data.train_batch_size", config.data.train_batch_size, "reward.num_workers", config.reward.num_workers)
