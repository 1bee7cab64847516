"""Rows in the order of their creation."""

from __future__ import annotations

from typing import Any

from transferqueue.samplers.base import BaseSampler


class SequentialSampler(BaseSampler):
    """The first `batch_size` ready rows; fewer when fewer are ready."""

    def sample(
        self, ready_indexes: list[int], batch_size: int, *args: Any, **kwargs: Any
    ) -> tuple[list[int], list[int]]:
        """See `BaseSampler.sample`; entries of the sampling configuration are ignored."""
        sampled = list(ready_indexes[:batch_size])
        return sampled, list(sampled)
