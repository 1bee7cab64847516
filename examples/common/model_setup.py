"""From the configuration to the model's sizes and its seeded weights, the same on every rank."""

from __future__ import annotations

from examples.common.config import PolicyConfig
from examples.common.model import ModelConfig
from examples.common.weights import StateDict, initial_state


def model_config_of(config: PolicyConfig) -> ModelConfig:
    """Sizes of the model that the configuration asks for."""
    return ModelConfig(
        vocab_size=config.vocab_size,
        max_position=config.max_position,
        hidden_size=config.model.hidden_size,
        num_layers=config.model.num_layers,
        num_heads=config.model.num_heads,
    )


def initial_state_of(config: PolicyConfig) -> StateDict:
    """The weights that training starts from."""
    return initial_state(model_config_of(config), config.trainer.seed, config.model.initializer_range)
