"""Rows for ranks that ask by themselves, each at its own time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transferqueue.samplers.base import BaseSampler


class RankAwareSampler(BaseSampler):
    """The first ready rows; who asks again for the same (`dp_rank`, `batch_index`) gets the same rows.

    So all ranks of a data-parallel group (its tensor- and pipeline-parallel ranks) may fetch for themselves: the first
    to ask decides. The sampling configuration must give `dp_rank`, `batch_index`, `task_name` and `partition_id`.
    """

    def sample(
        self,
        ready_indexes: list[int],
        batch_size: int,
        dp_rank: int,
        batch_index: int,
        task_name: str,
        partition_id: str,
        *args: Any,
        **kwargs: Any,
    ) -> tuple[list[int], list[int]]:
        """See `BaseSampler.sample`; ``([], [])`` when fewer than `batch_size` rows are ready.

        Args:
            ready_indexes: what can be had.
            batch_size: how many rows this rank gets.
            dp_rank: the data-parallel group that asks, >= 0.
            batch_index: the how-manieth batch of that group it is.
            task_name: the consumer, under whose name the answer is kept.
            partition_id: likewise.

        Raises:
            ValueError: `dp_rank` is negative.
            TypeError: one of the four is missing.
        """
        if dp_rank < 0:
            raise ValueError(f"dp_rank {dp_rank} must be greater than or equal to 0")
        batches: dict[int, list[int]] = self._task_states(partition_id, task_name).setdefault(dp_rank, {})
        if batch_index not in batches:
            if len(ready_indexes) < batch_size:
                return [], []
            batches[batch_index] = list(ready_indexes[:batch_size])
        rows = batches[batch_index]
        return list(rows), list(rows)

    def has_cached_result(
        self, partition_id: str, task_name: str, sampling_config: Mapping[str, Any] | None = None
    ) -> bool:
        """Whether this rank asked for this batch before."""
        config = sampling_config or {}
        ranks: dict[Any, dict[Any, list[int]]] = self._states_of(partition_id, task_name)
        return config.get("batch_index") in ranks.get(config.get("dp_rank"), {})
