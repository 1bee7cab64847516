"""What the configurations of the examples have in common: sections, and how a file and overrides become one of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from omegaconf import MISSING, OmegaConf

from examples.common.tokenizer import CharTokenizer

_Config = TypeVar("_Config")


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
class TrainerSection:
    """What every loop needs to know; an example adds its own."""

    name: str = MISSING
    output_dir: str = MISSING
    seed: int = MISSING
    total_training_steps: int = MISSING
    test_freq: int = MISSING
    controller: str = MISSING
    required_gain: float = MISSING
    ray_num_cpus: int = MISSING
    storage_size: str = MISSING
    warm_up: WarmUpConfig = MISSING


@dataclass
class PolicyConfig:
    """The sections that the policy's ranks and the data loader read."""

    data: DataConfig = MISSING
    model: ModelSection = MISSING
    actor_rollout_ref: ActorRolloutRefConfig = MISSING
    trainer: TrainerSection = MISSING

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


def load_file(schema: type[_Config], file: Path, overrides: Sequence[str]) -> _Config:
    """The file as a `schema`, with ``section.key=value`` overrides on top.

    Raises omegaconf's errors for unknown keys and wrong types, and `ValueError` for what is no override.
    """
    malformed = [override for override in overrides if "=" not in override]
    if malformed:
        raise ValueError(f"overrides look like trainer.seed=3; got {malformed}")
    merged = OmegaConf.merge(
        OmegaConf.structured(schema), OmegaConf.load(file), OmegaConf.from_dotlist(list(overrides))
    )
    return cast(_Config, OmegaConf.to_object(merged))


def to_yaml(config: object) -> str:
    """The resolved configuration as text."""
    return OmegaConf.to_yaml(OmegaConf.structured(config))


def to_lines(config: object) -> list[str]:
    """The resolved configuration with a line for each section: ``trainer: name=demo seed=1 ...``."""

    def leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
        for name, value in values.items():
            if isinstance(value, Mapping):
                yield from leaves(value, f"{prefix}{name}.")
            else:
                yield f"{prefix}{name}={value}"

    sections = cast("dict[str, Any]", OmegaConf.to_container(OmegaConf.structured(config)))
    return [f"{name}: {' '.join(leaves(values))}" for name, values in sections.items()]


def check_policy_config(config: PolicyConfig) -> None:
    """`ValueError` naming the keys of the common sections that do not go together."""
    actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    one_of("trainer.controller", config.trainer.controller, ("driver", "actor"))
    dp_size = actor.data_parallel_size
    divides("data.train_batch_size * rollout.n", config.train_rows, "actor.data_parallel_size", dp_size)
    divides(
        "data.train_batch_size", config.data.train_batch_size, "actor.ppo_mini_batch_size", actor.ppo_mini_batch_size
    )
    mini_rows = actor.ppo_mini_batch_size * rollout.n
    divides("actor.ppo_mini_batch_size * rollout.n", mini_rows, "actor.data_parallel_size", dp_size)
    divides("trainer.warm_up.batch_size", config.trainer.warm_up.batch_size, "actor.data_parallel_size", dp_size)
    divides("model.num_heads", config.model.num_heads, "actor.tensor_parallel_size", actor.tensor_parallel_size)


def one_of(key: str, value: object, allowed: tuple[object, ...]) -> None:
    """`ValueError` for a value that is not allowed."""
    if value not in allowed:
        raise ValueError(f"{key}={value!r} is none of {', '.join(map(str, allowed))}")


def divides(key: str, value: int, by: str, divisor: int) -> None:
    """`ValueError` when `value` is not a multiple of `divisor`."""
    if divisor < 1 or value % divisor:
        raise ValueError(f"{key}={value} is not a multiple of {by}={divisor}")
