"""Batches in which every rank has about the same number of tokens."""

from __future__ import annotations

from typing import Any

import pytest

from transferqueue.samplers import SeqlenBalancedSampler

NAMES = {"task_name": "t", "partition_id": "p"}


class Lengths:
    def __init__(self, *lengths: int) -> None:
        self.tags: dict[int, dict[str, int]] = {row: {"total_lengths": length} for row, length in enumerate(lengths)}

    def get_custom_meta(self, indexes: list[int]) -> dict[int, dict[str, int]]:
        return {index: self.tags.get(index, {}) for index in indexes}


def rank(
    sampler: SeqlenBalancedSampler, ready: list[int], size: int, dp_rank: int, batch: int = 0, **other: Any
) -> Any:
    sampled, consumed = sampler(ready, size, dp_rank=dp_rank, batch_index=batch, **{**NAMES, **other})
    assert sampled == consumed
    return sampled


def test_ranks_get_equal_numbers_of_rows_and_tokens() -> None:
    sampler, lengths = SeqlenBalancedSampler(dp_size=2), Lengths(100, 100, 10, 10)
    shares = [rank(sampler, [0, 1, 2, 3], 2, dp_rank, partition=lengths) for dp_rank in (0, 1)]
    assert sorted(shares[0] + shares[1]) == [0, 1, 2, 3]
    assert [sum(lengths.tags[row]["total_lengths"] for row in share) for share in shares] == [110, 110]


def test_groups_stay_together() -> None:
    sampler, lengths = SeqlenBalancedSampler(2, dp_size=2), Lengths(5, 5, 50, 50, 7, 7, 60, 60)
    assert rank(sampler, list(range(8)), 4, 0, partition=lengths) == [0, 1, 6, 7]
    assert rank(sampler, [2, 3, 4, 5], 4, 1, partition=lengths) == [2, 3, 4, 5]


def test_the_first_rank_that_asks_decides_for_all() -> None:
    sampler = SeqlenBalancedSampler(dp_size=3)
    assert rank(sampler, list(range(6)), 2, 1) == [2, 3]
    for dp_rank in (0, 1, 2):
        assert sampler.has_cached_result("p", "t", {"dp_rank": dp_rank, "batch_index": 0})
    assert not sampler.has_cached_result("p", "t", {"dp_rank": 3, "batch_index": 0})
    assert not sampler.has_cached_result("p", "t", {"dp_rank": 0, "batch_index": 1})
    assert [rank(sampler, [], 2, dp_rank) for dp_rank in (0, 1, 2, 3)] == [[0, 1], [2, 3], [4, 5], []]
    assert sampler._states["p"]["t"][2][0] == ([4, 5], [4, 5])


def test_rows_kept_for_a_rank_are_offered_to_nobody_else() -> None:
    sampler = SeqlenBalancedSampler(dp_size=2)
    assert rank(sampler, [0, 1, 2, 3], 2, 0) == [0, 1]
    assert rank(sampler, [2, 3, 4, 5], 2, 0, batch=1) == []  # 2 and 3 are rank 1's of batch 0
    assert rank(sampler, [2, 3, 4, 5, 6, 7], 2, 0, batch=1) == [4, 5]
    assert rank(sampler, [2, 3, 6, 7], 2, 1, batch=1) == [6, 7]
    assert rank(sampler, [2, 3], 2, 1, batch=0) == [2, 3]
    assert rank(sampler, [0, 1, 2, 3], 2, 0, task_name="u") == [0, 1]


def test_without_a_partition_rows_are_split_in_their_order() -> None:
    assert rank(SeqlenBalancedSampler(2), [0, 1, 2, 3], 4, 0) == [0, 1, 2, 3]
    sampler = SeqlenBalancedSampler(2, dp_size=2)
    assert [rank(sampler, list(range(8)), 4, dp_rank) for dp_rank in (0, 1)] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_missing_lengths_count_as_nothing() -> None:
    sampler, lengths = SeqlenBalancedSampler(dp_size=2), Lengths(9)
    shares = [rank(sampler, [0, 1, 2, 3], 2, dp_rank, partition=lengths) for dp_rank in (0, 1)]
    assert sorted(map(len, shares)) == [2, 2]


def test_without_a_batch_index_each_call_splits_anew() -> None:
    sampler = SeqlenBalancedSampler()
    assert sampler([0, 1, 2, 3], 2) == ([0, 1], [0, 1])
    assert sampler([2, 3], 2) == ([2, 3], [2, 3])
    assert not sampler._balanced_cache


def test_too_few_rows_for_all_ranks_are_not_enough() -> None:
    sampler = SeqlenBalancedSampler(2, dp_size=2)
    assert rank(sampler, [0, 1], 2, 0) == []
    assert not sampler.has_cached_result("p", "t", {"dp_rank": 0, "batch_index": 0})
    assert rank(sampler, [0, 1, 2, 3], 2, 5) == []
    assert rank(sampler, [0, 1, 2, 3], 2, 1) == [2, 3]


def test_clearing_touches_one_partition() -> None:
    sampler = SeqlenBalancedSampler()
    rank(sampler, [0, 1], 2, 0)
    rank(sampler, [2, 3], 2, 0, partition_id="q")
    sampler.clear_cache("p")
    assert list(sampler._balanced_cache) == [("q", "t", 0)]
    assert list(sampler._states) == ["q"]
    assert rank(sampler, [4, 5], 2, 0) == [4, 5]


def test_a_checkpoint_holds_what_is_kept_and_not_the_configuration() -> None:
    sampler = SeqlenBalancedSampler(dp_size=2)
    rank(sampler, [0, 1, 2, 3], 2, 0)
    saved = sampler.save_checkpoint()
    assert set(saved) == {"_states", "_balanced_cache"}
    restored = SeqlenBalancedSampler(2, dp_size=2)
    restored.load_checkpoint(saved)
    assert rank(restored, [], 2, 1) == [2, 3]
    assert restored.n_samples_per_prompt == 2


@pytest.mark.parametrize("dp_size", [0, -1])
def test_there_is_a_rank(dp_size: int) -> None:
    with pytest.raises(ValueError, match="dp_size must be positive"):
        SeqlenBalancedSampler(dp_size=dp_size)


def test_wrong_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="must be a multiple of n_samples_per_prompt"):
        rank(SeqlenBalancedSampler(4, dp_size=2), list(range(20)), 3, 0)
    with pytest.raises(ValueError, match="greater than or equal to 0"):
        rank(SeqlenBalancedSampler(), [0], 1, -1)
    uneven = SeqlenBalancedSampler(4, dp_size=2)
    with pytest.raises(AssertionError, match="3 % 2 != 0"):
        rank(uneven, list(range(12)), 6, 0, partition=Lengths(*range(12)))
    assert not uneven._balanced_cache
