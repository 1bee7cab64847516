"""Numbers that stages report beside their fields."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Metrics = dict[str, float]


def mean_metrics(entries: Mapping[str, Any]) -> Metrics:
    """Every number as it is; a list (one number per shard, shards being of equal size) by its mean."""
    metrics: Metrics = {}
    for name, value in entries.items():
        numbers = value if isinstance(value, (list, tuple)) else [value]
        metrics[name] = sum(float(number) for number in numbers) / len(numbers)
    return metrics


def merge_shards(outputs: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Dicts of several shards as one dict of lists."""
    merged: dict[str, list[Any]] = {}
    for output in outputs:
        for name, value in output.items():
            merged.setdefault(name, []).append(value)
    return merged
