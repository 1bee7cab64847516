"""Rows for ranks that ask by themselves."""

from __future__ import annotations

from typing import Any

import pytest

from transferqueue.samplers import RankAwareSampler


def ask(sampler: RankAwareSampler, ready: list[int], size: int, rank: int = 0, batch: int = 0, **other: Any) -> Any:
    names = {"task_name": "t", "partition_id": "p", **other}
    return sampler(ready, size, dp_rank=rank, batch_index=batch, **names)


def test_the_same_rank_and_batch_get_the_same_rows_whatever_is_ready() -> None:
    sampler = RankAwareSampler()
    assert ask(sampler, [5, 2, 9, 1], 2) == ([5, 2], [5, 2])
    assert ask(sampler, [9, 1], 2) == ([5, 2], [5, 2])
    assert ask(sampler, [], 1) == ([5, 2], [5, 2])
    assert ask(sampler, [9, 1], 2, rank=1) == ([9, 1], [9, 1])
    assert ask(sampler, [7, 8], 2, batch=1) == ([7, 8], [7, 8])


def test_answers_are_kept_per_partition_and_task() -> None:
    sampler = RankAwareSampler()
    ask(sampler, [0, 1], 2)
    assert ask(sampler, [4, 5], 2, task_name="u") == ([4, 5], [4, 5])
    assert ask(sampler, [6, 7], 2, partition_id="q") == ([6, 7], [6, 7])
    assert sampler._states == {"p": {"t": {0: {0: [0, 1]}}, "u": {0: {0: [4, 5]}}}, "q": {"t": {0: {0: [6, 7]}}}}
    sampler.clear_cache("p")
    assert sampler._states == {"q": {"t": {0: {0: [6, 7]}}}}
    sampler.clear_cache("never seen")


def test_too_few_rows_are_not_enough_and_nothing_is_kept() -> None:
    sampler = RankAwareSampler()
    assert ask(sampler, [0, 1], 3) == ([], [])
    assert not sampler.has_cached_result("p", "t", {"dp_rank": 0, "batch_index": 0})
    assert ask(sampler, [0, 1, 2], 3) == ([0, 1, 2], [0, 1, 2])
    assert sampler.has_cached_result("p", "t", {"dp_rank": 0, "batch_index": 0})
    for other in ({"dp_rank": 1, "batch_index": 0}, {"dp_rank": 0, "batch_index": 1}, {}, None):
        assert not sampler.has_cached_result("p", "t", other)
    assert not sampler.has_cached_result("p", "u", {"dp_rank": 0, "batch_index": 0})


def test_what_a_caller_does_to_an_answer_does_not_change_what_is_kept() -> None:
    sampler = RankAwareSampler()
    sampled, consumed = ask(sampler, [0, 1], 2)
    sampled.clear()
    consumed.append(7)
    assert ask(sampler, [], 2) == ([0, 1], [0, 1])


def test_who_asks_must_say_who_it_is() -> None:
    with pytest.raises(ValueError, match="dp_rank -1 must be greater than or equal to 0"):
        ask(RankAwareSampler(), [0, 1], 2, rank=-1)
    with pytest.raises(TypeError, match="'dp_rank', 'batch_index', 'task_name', and 'partition_id'"):
        RankAwareSampler()([0, 1], 2)
    assert ask(RankAwareSampler(), [0, 1], 2, unknown=3) == ([0, 1], [0, 1])


def test_a_checkpoint_holds_the_answers() -> None:
    sampler = RankAwareSampler()
    ask(sampler, [0, 1], 2)
    saved = sampler.save_checkpoint()
    assert saved == {"_states": {"p": {"t": {0: {0: [0, 1]}}}}}
    ask(sampler, [2, 3], 2, batch=1)
    restored = RankAwareSampler()
    restored.load_checkpoint(saved)
    assert ask(restored, [8, 9], 2) == ([0, 1], [0, 1])
    assert ask(restored, [8, 9], 2, batch=1) == ([8, 9], [8, 9])
