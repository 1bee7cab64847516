"""Whole groups of samples of one prompt, as group-relative policy optimisation needs them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from transferqueue.samplers.base import BaseSampler


class GRPOGroupNSampler(BaseSampler):
    """Groups of `n_samples_per_prompt` *consecutive* global indexes; a group that is not complete waits.

    The rows of a prompt are expected to be put one after another, which gives them consecutive indexes. With `dp_rank`
    and `batch_index` in the sampling configuration, asking again for the same pair gives the same rows.

    Raises:
        ValueError: `n_samples_per_prompt` is not positive.
    """

    _configuration: ClassVar[tuple[str, ...]] = ("n_samples_per_prompt",)

    def __init__(self, n_samples_per_prompt: int = 1) -> None:
        super().__init__()
        if n_samples_per_prompt <= 0:
            raise ValueError(f"n_samples_per_prompt must be positive, got {n_samples_per_prompt}")
        self.n_samples_per_prompt = n_samples_per_prompt

    def has_cached_result(
        self, partition_id: str, task_name: str, sampling_config: Mapping[str, Any] | None = None
    ) -> bool:
        """Whether the rows for this rank and batch are decided."""
        config = sampling_config or {}
        ranks: dict[Any, dict[Any, Any]] = self._states_of(partition_id, task_name)
        return config.get("batch_index") in ranks.get(config.get("dp_rank"), {})

    def sample(
        self,
        ready_indexes: list[int],
        batch_size: int,
        task_name: str = "",
        partition_id: str = "",
        *args: Any,
        **kwargs: Any,
    ) -> tuple[list[int], list[int]]:
        """See `BaseSampler.sample`.

        Raises:
            ValueError: `batch_size` is not a multiple of the group size.
        """
        n = self.n_samples_per_prompt
        if batch_size % n:
            raise ValueError(f"batch_size ({batch_size}) must be a multiple of n_samples_per_prompt ({n})")
        rank, batch = kwargs.get("dp_rank"), kwargs.get("batch_index")
        if rank is None or batch is None:
            sampled = self._first_groups(sorted(ready_indexes), batch_size)
            return sampled, list(sampled)
        batches: dict[Any, tuple[list[int], list[int]]] = self._states_of(partition_id, task_name).get(rank, {})
        if batch not in batches:
            sampled = self._first_groups(sorted(ready_indexes), batch_size)
            if not sampled:
                return [], []
            batches = self._task_states(partition_id, task_name).setdefault(rank, {})
            batches[batch] = (sampled, list(sampled))
        sampled, consumed = batches[batch]
        return list(sampled), list(consumed)

    def _first_groups(self, ready: list[int], batch_size: int) -> list[int]:
        n, chosen, at = self.n_samples_per_prompt, list[int](), 0
        while len(chosen) < batch_size and at + n <= len(ready):
            if ready[at + n - 1] - ready[at] == n - 1:  # sorted and distinct: no gap in between
                chosen += ready[at : at + n]
                at += n
            else:
                at += 1
        return chosen if len(chosen) == batch_size else []
