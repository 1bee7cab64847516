"""What the runs of all examples tell while they go on; an example adds its own. All of them pickle."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from examples.common.metrics import Metrics


@dataclass(frozen=True)
class Started:
    """The ranks are up: how many there are of each group. `controller_pid` is the process that runs the loop."""

    parameters: int
    ranks: dict[str, int]
    session: str
    controller_pid: int = field(default_factory=os.getpid)


@dataclass(frozen=True)
class WarmedUp:
    """`step` of `total_steps` supervised steps are done."""

    step: int
    total_steps: int
    metrics: Metrics


@dataclass(frozen=True)
class Evaluated:
    """Accuracy on the held-out problems, at a named moment and after `step` steps of reinforcement learning."""

    moment: str
    step: int
    accuracy: float
    metrics: Metrics
