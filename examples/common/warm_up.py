"""The batches of the supervised warm-up, in the order in which they are shown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tensordict import TensorDict

from examples.common.config import PolicyConfig
from examples.common.data_loader import DataLoader


@dataclass(frozen=True)
class WarmUpPart:
    """Rows for `steps` supervised steps in one call, of which the first is number `first_step` of `total_steps`."""

    rows: TensorDict
    partition: str
    first_step: int
    steps: int
    total_steps: int


def warm_up_parts(config: PolicyConfig, loader: DataLoader) -> Iterator[WarmUpPart]:
    """`trainer.warm_up.examples` sums with their answers, each shown once; most are worked out until near the end."""
    settings = config.trainer.warm_up
    total_steps = settings.examples // settings.batch_size
    for first_step in range(0, total_steps, settings.report_every):
        steps = min(settings.report_every, total_steps - first_step)
        at_end = first_step >= (1.0 - settings.end_fraction) * total_steps
        rows = loader.warm_up_batch(
            steps * settings.batch_size,
            settings.worked_share_end if at_end else settings.worked_share,
            seed=config.trainer.seed * 100_003 + first_step,
        )
        yield WarmUpPart(rows, f"warm_up_{first_step}", first_step, steps, total_steps)
