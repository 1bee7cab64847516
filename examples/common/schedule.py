"""Learning rates over time, as factors of the configured one."""

from __future__ import annotations

_RAMP_STEPS = 20
_FLOOR = 0.1


def linear_warm_up(step: int, ramp_steps: int) -> float:
    """Rises from ``1 / ramp_steps`` to 1 and stays there; `step` counts from 0."""
    return min(1.0, (step + 1) / max(1, ramp_steps))


def linear_decay(step: int, total_steps: int) -> float:
    """Rises over the first 20 steps, then falls in a line to a tenth at the end; `step` counts from 0."""
    return linear_warm_up(step, _RAMP_STEPS) * (1.0 - (1.0 - _FLOOR) * min(1.0, step / max(1, total_steps)))
