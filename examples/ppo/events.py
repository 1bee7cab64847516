"""What a PPO run tells while it goes on, beside what all examples tell."""

from __future__ import annotations

from dataclasses import dataclass

from examples.common.events import Evaluated, Started, WarmedUp
from examples.common.metrics import Metrics


@dataclass(frozen=True)
class Layout:
    """Which roles run in which processes of which pool, a line of text for each group of processes."""

    lines: list[str]


@dataclass(frozen=True)
class Stepped:
    """One PPO step: what its stages reported, their wall-clock seconds, and what the controller held of the batch.

    `metadata_nbytes` is the pickled size of every argument and answer of the controller's calls; `payload_nbytes` is
    what the step wrote to shared memory.
    """

    step: int
    total_steps: int
    metrics: Metrics
    stage_s: dict[str, float]
    metadata_nbytes: int
    payload_nbytes: int


Event = Started | Layout | WarmedUp | Evaluated | Stepped
