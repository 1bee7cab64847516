"""Results as the measuring scripts print them."""

from __future__ import annotations

from typing import Any

from bench.goals import SYSTEM
from bench.timing import Measured


def result(
    claim: str, system: str = SYSTEM, *, put_s: float = 0.0, get_s: float = 0.0, memcpy_s: float = 0.0, **facts: float
) -> dict[str, Any]:
    """One round of each that is not 0."""
    measured = Measured(claim, system, facts=dict(facts))
    for values, seconds in ((measured.put_s, put_s), (measured.get_s, get_s), (measured.memcpy_s, memcpy_s)):
        if seconds:
            values.append(seconds)
    return measured.as_json()


def record(*results: dict[str, Any], failed: dict[str, str] | None = None) -> dict[str, Any]:
    """A record of the runner."""
    machine = {
        "taken": "2030-01-02 03:04:05",
        "cpu": "a CPU",
        "cpus": 2,
        "kernel": "6.18",
        "python": "3.11.7",
        "versions": {"torch": "2.13.0"},
        "load_before": [0.1, 0.2, 0.3],
    }
    return {
        "machine": machine,
        "seconds": 120.0,
        "seconds_of_jobs": {},
        "failed": failed or {},
        "results": list(results),
    }
