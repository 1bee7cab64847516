"""Batches in which every rank has about the same number of tokens."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, ClassVar

from transferqueue.samplers.grpo_group_n_sampler import GRPOGroupNSampler
from transferqueue.samplers.karmarkar_karp import get_seqlen_balanced_partitions

__all__ = ["SeqlenBalancedSampler", "get_seqlen_balanced_partitions"]

_logger = logging.getLogger(__name__)
_LENGTH_TAG = "total_lengths"


class SeqlenBalancedSampler(GRPOGroupNSampler):
    """Takes a batch for all ranks at once and splits it so that the ranks' sums of lengths are close.

    The first rank that asks for a `batch_index` decides for all: `batch_size` x `dp_size` rows are taken in whole
    groups of `n_samples_per_prompt` and split by the tag ``"total_lengths"`` of the rows (a missing one counts as 0;
    see `get_seqlen_balanced_partitions`). Every rank gets `batch_size` rows. What is kept for ranks that have not asked
    yet is offered to nobody else. Without a `batch_index` nothing is kept: each call splits anew.

    Raises:
        ValueError: `n_samples_per_prompt` or `dp_size` is not positive.
    """

    _configuration: ClassVar[tuple[str, ...]] = (*GRPOGroupNSampler._configuration, "dp_size")

    def __init__(self, n_samples_per_prompt: int = 1, dp_size: int = 1) -> None:
        super().__init__(n_samples_per_prompt)
        if dp_size <= 0:
            raise ValueError(f"dp_size must be positive, got {dp_size}")
        self.dp_size = dp_size
        self._balanced_cache: dict[tuple[str, str, Any], list[list[int]]] = {}

    def sample(
        self,
        ready_indexes: list[int],
        batch_size: int,
        task_name: str = "",
        partition_id: str = "",
        *args: Any,
        dp_rank: int = 0,
        batch_index: Any = None,
        partition: Any = None,
        **kwargs: Any,
    ) -> tuple[list[int], list[int]]:
        """See `BaseSampler.sample`.

        Args:
            ready_indexes: what can be had.
            batch_size: rows per rank.
            task_name: the consumer, under whose name the split is kept.
            partition_id: likewise.
            dp_rank: whose share to return; beyond `dp_size` it is empty.
            batch_index: the how-manieth batch it is.
            partition: gives the tags; without it the groups are split in their order.

        Raises:
            ValueError: `batch_size` x `dp_size` is not a multiple of the group size; `dp_rank` is negative.
            AssertionError: the groups cannot be divided equally among the ranks.
        """
        if dp_rank < 0:
            raise ValueError(f"dp_rank {dp_rank} must be greater than or equal to 0")
        key = (partition_id, task_name, batch_index)
        shares = None if batch_index is None else self._balanced_cache.get(key)
        if shares is None:
            free = self._without_kept(ready_indexes, partition_id, task_name)
            batch, _ = super().sample(free, batch_size * self.dp_size)
            if not batch or dp_rank >= self.dp_size:
                return [], []
            shares = self._split(batch, partition)
            if batch_index is not None:
                self._balanced_cache[key] = shares
                states = self._task_states(partition_id, task_name)
                for rank, share in enumerate(shares):
                    states.setdefault(rank, {})[batch_index] = (share, share)
        share = shares[dp_rank] if dp_rank < len(shares) else []
        return list(share), list(share)

    def clear_cache(self, partition_id: str) -> None:
        """Forgets what belongs to a partition."""
        super().clear_cache(partition_id)
        self._balanced_cache = {key: shares for key, shares in self._balanced_cache.items() if key[0] != partition_id}

    def _without_kept(self, ready: Sequence[int], partition_id: str, task_name: str) -> list[int]:
        kept = {
            row
            for batches in self._states_of(partition_id, task_name).values()
            for share, _ in batches.values()
            for row in share
        }
        return [row for row in ready if row not in kept]

    def _split(self, batch: list[int], partition: Any) -> list[list[int]]:
        if partition is None:
            _logger.warning(
                "SeqlenBalancedSampler got no partition to ask for lengths; the rows are split in their order"
            )
            size = len(batch) // self.dp_size
            return [batch[rank * size : (rank + 1) * size] for rank in range(self.dp_size)]
        n = self.n_samples_per_prompt
        groups = [batch[at : at + n] for at in range(0, len(batch), n)]
        tags = partition.get_custom_meta(batch)
        lengths = [sum(tags.get(row, {}).get(_LENGTH_TAG, 0) for row in group) for group in groups]
        parts = get_seqlen_balanced_partitions(lengths, self.dp_size, equal_size=True)
        return [[row for group in part for row in groups[group]] for part in parts]
