"""How dear divergence from the reference is, from step to step."""

from __future__ import annotations

from examples.ppo.config import KlControlConfig

_LARGEST_ERROR = 0.2


class KlControl:
    """`coef` is what one nat costs. Adaptive control raises it while responses diverge by more than `target_kl` nats.

    Source: Ziegler et al. (arXiv 1909.08593, section 2.2). With `type` "fixed" it stays as it is.
    """

    def __init__(self, config: KlControlConfig) -> None:
        self.coef = config.kl_coef
        self._config = config

    def update(self, measured_kl: float, responses: int) -> None:
        """One step is over, with that divergence in nats a response."""
        if self._config.type == "fixed":
            return
        error = measured_kl / self._config.target_kl - 1.0
        error = min(_LARGEST_ERROR, max(-_LARGEST_ERROR, error))
        self.coef *= 1.0 + error * responses / self._config.horizon
