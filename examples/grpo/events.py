"""What a run tells while it goes on: made by the trainer, shown and recorded by the driver. All of them pickle."""

from __future__ import annotations

from dataclasses import dataclass, field

from examples.common.events import Evaluated, Started, WarmedUp
from examples.common.metrics import Metrics


@dataclass(frozen=True)
class Cost:
    """What `steps` steps with one way of passing cost.

    `sent_bytes` and `received_bytes` are what the controller serialised into calls and got back; `controller_cpu_s` is
    the processor time of its thread. The others were written to, viewed in and copied out of shared memory;
    the weights are apart, as they go through shared memory with either way of passing.
    """

    passing: str
    steps: int
    sent_bytes: int
    received_bytes: int
    controller_cpu_s: float
    written_bytes: int
    viewed_bytes: int
    copied_bytes: int
    weights_written_bytes: int
    weights_viewed_bytes: int


@dataclass(frozen=True)
class Stepped:
    """One GRPO step: what its stages reported, their wall-clock seconds, what it cost."""

    step: int
    total_steps: int
    metrics: Metrics
    stage_s: dict[str, float]
    cost: Cost


@dataclass(frozen=True)
class Finished:
    """The end: costs summed by way of passing, accuracies by moment."""

    costs: list[Cost] = field(default_factory=list)
    accuracies: dict[str, float] = field(default_factory=dict)


Event = Started | WarmedUp | Evaluated | Stepped | Finished
