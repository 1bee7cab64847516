"""The configuration: its schema, `config.yaml` with the values, and dotted overrides from the command line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from omegaconf import MISSING, OmegaConf

from examples.grpo.tokenizer import CharTokenizer

DEFAULT_FILE = Path(__file__).with_name("config.yaml")


@dataclass
class DataConfig:
    """The task and its batches; sizes in prompts, lengths in tokens."""

    min_terms: int = MISSING
    max_terms: int = MISSING
    min_digits: int = MISSING
    max_digits: int = MISSING
    seed: int = MISSING
    train_batch_size: int = MISSING
    val_size: int = MISSING
    max_prompt_length: int = MISSING
    max_response_length: int = MISSING


@dataclass
class ModelSection:
    """Sizes of the transformer."""

    hidden_size: int = MISSING
    num_layers: int = MISSING
    num_heads: int = MISSING
    initializer_range: float = MISSING


@dataclass
class AlgorithmConfig:
    """How scores become advantages."""

    adv_estimator: str = MISSING
    norm_adv_by_std_in_grpo: bool = MISSING


@dataclass
class OptimConfig:
    """AdamW; the learning rate rises linearly over `lr_warmup_steps`."""

    lr: float = MISSING
    lr_warmup_steps: int = MISSING
    betas: tuple[float, float] = MISSING
    weight_decay: float = MISSING


@dataclass
class ActorConfig:
    """The trained policy; the mini-batch is in prompts, as `train_batch_size` is."""

    data_parallel_size: int = MISSING
    tensor_parallel_size: int = MISSING
    ppo_mini_batch_size: int = MISSING
    ppo_epochs: int = MISSING
    clip_ratio_low: float = MISSING
    clip_ratio_high: float = MISSING
    use_kl_loss: bool = MISSING
    kl_loss_coef: float = MISSING
    grad_clip: float = MISSING
    optim: OptimConfig = MISSING


@dataclass
class ValConfig:
    """Sampling of held-out answers; temperature 0 takes the most likely token."""

    temperature: float = MISSING


@dataclass
class RolloutConfig:
    """Sampling: `n` responses a prompt. Log-probabilities of what was sampled are computed by the actor."""

    data_parallel_size: int = MISSING
    n: int = MISSING
    temperature: float = MISSING
    log_prob_micro_batch_size_per_rank: int = MISSING
    val_kwargs: ValConfig = MISSING


@dataclass
class RefConfig:
    """The frozen reference, which lives in the actor's ranks; the micro-batch is in rows."""

    log_prob_micro_batch_size_per_rank: int = MISSING


@dataclass
class ActorRolloutRefConfig:
    """The three roles of the model."""

    actor: ActorConfig = MISSING
    rollout: RolloutConfig = MISSING
    ref: RefConfig = MISSING


@dataclass
class RewardConfig:
    """Ranks that score answers and compute advantages."""

    num_workers: int = MISSING


@dataclass
class WarmUpConfig:
    """The supervised start: `examples` sums with their answers, seen once, in batches of `batch_size`."""

    examples: int = MISSING
    batch_size: int = MISSING
    lr: float = MISSING
    grad_clip: float = MISSING
    worked_share: float = MISSING
    worked_share_end: float = MISSING
    end_fraction: float = MISSING
    report_every: int = MISSING


@dataclass
class TrainerConfig:
    """The loop, what it runs on and what it leaves behind."""

    name: str = MISSING
    output_dir: str = MISSING
    seed: int = MISSING
    total_training_steps: int = MISSING
    test_freq: int = MISSING
    passing: str = MISSING
    compare_steps: int = MISSING
    controller: str = MISSING
    required_gain: float = MISSING
    ray_num_cpus: int = MISSING
    storage_size: str = MISSING
    warm_up: WarmUpConfig = MISSING


@dataclass
class GrpoConfig:
    """All sections."""

    data: DataConfig = MISSING
    model: ModelSection = MISSING
    algorithm: AlgorithmConfig = MISSING
    actor_rollout_ref: ActorRolloutRefConfig = MISSING
    reward: RewardConfig = MISSING
    trainer: TrainerConfig = MISSING

    @property
    def train_rows(self) -> int:
        """Rows of one step: prompts times responses a prompt."""
        return self.data.train_batch_size * self.actor_rollout_ref.rollout.n

    @property
    def vocab_size(self) -> int:
        """Tokens of the alphabet."""
        return CharTokenizer.vocab_size

    @property
    def max_position(self) -> int:
        """Longest prompt plus longest response, in tokens."""
        return self.data.max_prompt_length + self.data.max_response_length


def load_config(overrides: Sequence[str] = (), file: Path = DEFAULT_FILE) -> GrpoConfig:
    """The file with ``section.key=value`` overrides on top.

    Raises omegaconf's errors for unknown keys and wrong types, and `ValueError` for values that do not go together.
    """
    malformed = [override for override in overrides if "=" not in override]
    if malformed:
        raise ValueError(f"overrides look like trainer.seed=3; got {malformed}")
    merged = OmegaConf.merge(
        OmegaConf.structured(GrpoConfig), OmegaConf.load(file), OmegaConf.from_dotlist(list(overrides))
    )
    config = cast(GrpoConfig, OmegaConf.to_object(merged))
    check_config(config)
    return config


def to_yaml(config: GrpoConfig) -> str:
    """The resolved configuration as text."""
    return OmegaConf.to_yaml(OmegaConf.structured(config))


def to_lines(config: GrpoConfig) -> list[str]:
    """The resolved configuration with a line for each section: ``trainer: name=demo seed=1 ...``."""

    def leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
        for name, value in values.items():
            if isinstance(value, Mapping):
                yield from leaves(value, f"{prefix}{name}.")
            else:
                yield f"{prefix}{name}={value}"

    sections = cast("dict[str, Any]", OmegaConf.to_container(OmegaConf.structured(config)))
    return [f"{name}: {' '.join(leaves(values))}" for name, values in sections.items()]


def check_config(config: GrpoConfig) -> None:
    """`ValueError` naming the keys that do not go together."""
    actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    _one_of("trainer.passing", config.trainer.passing, ("metadata", "batch"))
    _one_of("trainer.controller", config.trainer.controller, ("driver", "actor"))
    _one_of("algorithm.adv_estimator", config.algorithm.adv_estimator, ("grpo",))
    mini_rows = actor.ppo_mini_batch_size * rollout.n
    _divides(
        "data.train_batch_size * rollout.n", config.train_rows, "actor.data_parallel_size", actor.data_parallel_size
    )
    _divides(
        "data.train_batch_size * rollout.n", config.train_rows, "rollout.data_parallel_size", rollout.data_parallel_size
    )
    _divides("data.train_batch_size", config.data.train_batch_size, "reward.num_workers", config.reward.num_workers)
    _divides(
        "data.train_batch_size", config.data.train_batch_size, "actor.ppo_mini_batch_size", actor.ppo_mini_batch_size
    )
    _divides("actor.ppo_mini_batch_size * rollout.n", mini_rows, "actor.data_parallel_size", actor.data_parallel_size)
    _divides(
        "trainer.warm_up.batch_size",
        config.trainer.warm_up.batch_size,
        "actor.data_parallel_size",
        actor.data_parallel_size,
    )
    _divides("model.num_heads", config.model.num_heads, "actor.tensor_parallel_size", actor.tensor_parallel_size)


def _one_of(key: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{key}={value!r} is none of {', '.join(allowed)}")


def _divides(key: str, value: int, by: str, divisor: int) -> None:
    if divisor < 1 or value % divisor:
        raise ValueError(f"{key}={value} is not a multiple of {by}={divisor}")
