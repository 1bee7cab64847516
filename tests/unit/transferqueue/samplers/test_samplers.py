"""What the samplers choose, and how a sampler travels to the processes of a session."""

from __future__ import annotations

from typing import Any

import pytest

from transferqueue.samplers import BaseSampler, GRPOGroupNSampler, SequentialSampler
from transferqueue.samplers.registry import SamplerRun, describe_sampler, load_sampler, make_sampler


class Counting(BaseSampler):
    """Keeps a count, and takes no keyword arguments."""

    def __init__(self) -> None:
        self.calls = 0

    def sample(self, ready_indexes: list[int], batch_size: int) -> tuple[list[int], list[int]]:
        self.calls += 1
        return ready_indexes[:batch_size], ready_indexes[:batch_size]


class Wrong(BaseSampler):
    def sample(self, ready_indexes: list[int], batch_size: int, *args: Any, **kwargs: Any) -> Any:
        return ready_indexes


def test_the_base_is_abstract() -> None:
    with pytest.raises(TypeError, match="sample"):
        BaseSampler()  # type: ignore[abstract]


@pytest.mark.parametrize(("size", "expected"), [(2, [3, 4]), (9, [3, 4, 7]), (0, []), (-1, [3, 4])])
def test_sequential_takes_the_first(size: int, expected: list[int]) -> None:
    assert SequentialSampler()([3, 4, 7], size, dp_rank=1, unknown=2) == (expected, expected)


def test_groups_are_consecutive_and_complete() -> None:
    sampler = GRPOGroupNSampler(n_samples_per_prompt=3)
    ready = [8, 7, 6, 0, 1, 3, 4, 5]
    assert sampler(ready, 6) == ([3, 4, 5, 6, 7, 8], [3, 4, 5, 6, 7, 8])
    assert sampler(ready, 9) == ([], [])
    assert sampler([0, 1, 3, 4], 3) == ([], [])


@pytest.mark.parametrize("n", [0, -2])
def test_a_group_has_members(n: int) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        GRPOGroupNSampler(n)


def test_a_batch_is_whole_groups() -> None:
    with pytest.raises(ValueError, match="must be a multiple of n_samples_per_prompt"):
        GRPOGroupNSampler(4)([0, 1, 2, 3], 6)


def test_the_same_rank_and_batch_get_the_same_rows() -> None:
    sampler = GRPOGroupNSampler(2)
    first = sampler([0, 1, 2, 3], 2, dp_rank=0, batch_index=0, task_name="t", partition_id="p")
    again = sampler([2, 3], 2, dp_rank=0, batch_index=0, task_name="t", partition_id="p")
    other = sampler([2, 3], 2, dp_rank=1, batch_index=0, task_name="t", partition_id="p")
    assert first == again == ([0, 1], [0, 1])
    assert other == ([2, 3], [2, 3])
    assert sampler.has_cached_result("p", "t", {"dp_rank": 0, "batch_index": 0})
    assert not sampler.has_cached_result("p", "t", {"dp_rank": 0, "batch_index": 1})
    sampler.clear_cache("p")
    assert not sampler.has_cached_result("p", "t", {"dp_rank": 0, "batch_index": 0})


def test_a_checkpoint_is_a_copy() -> None:
    sampler = GRPOGroupNSampler(2)
    sampler([0, 1], 2, dp_rank=0, batch_index=0, task_name="t", partition_id="p")
    saved = sampler.save_checkpoint()
    sampler.clear_cache("p")
    restored = GRPOGroupNSampler(2)
    restored.load_checkpoint(saved)
    assert restored.has_cached_result("p", "t", {"dp_rank": 0, "batch_index": 0})


def test_names_classes_and_instances_make_samplers() -> None:
    assert isinstance(make_sampler("GRPOGroupNSampler"), GRPOGroupNSampler)
    assert isinstance(make_sampler(SequentialSampler), SequentialSampler)
    own = GRPOGroupNSampler(5)
    assert make_sampler(own) is own
    with pytest.raises(ValueError, match=r"Could not find sampler 'Nope'.*SequentialSampler"):
        make_sampler("Nope")
    with pytest.raises(TypeError, match="BaseSampler"):
        make_sampler(dict)


def test_a_sampler_travels_with_its_arguments() -> None:
    loaded = load_sampler(describe_sampler(GRPOGroupNSampler(7)))
    assert isinstance(loaded, GRPOGroupNSampler)
    assert loaded.n_samples_per_prompt == 7
    assert isinstance(load_sampler(describe_sampler("SequentialSampler")), SequentialSampler)
    assert isinstance(load_sampler({}), SequentialSampler)


def test_a_sampler_that_cannot_travel_is_refused_at_once() -> None:
    sampler = Counting()
    sampler.lock = __import__("threading").Lock()  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="Counting cannot be pickled"):
        describe_sampler(sampler)


def test_a_run_changes_nothing_but_the_state_it_returns() -> None:
    prototype = Counting()
    first = SamplerRun(prototype, b"")
    assert first.sample([1, 2, 3], 2, None, {}) == ([1, 2], [1, 2])
    state = first.state()
    second = SamplerRun(prototype, state)
    second.sample([3], 1, None, {})
    assert prototype.calls == 0
    third = SamplerRun(prototype, second.state())
    third.sample([4], 1, None, {})
    assert third._sampler.calls == 3  # type: ignore[attr-defined]


def test_a_sampler_without_state_keeps_none() -> None:
    run = SamplerRun(SequentialSampler(), b"")
    run.sample([1], 1, None, {})
    assert run.state() == b""


def test_an_answer_of_another_form_is_an_error_that_names_the_sampler() -> None:
    with pytest.raises(TypeError, match=r"Wrong\.sample must return"):
        SamplerRun(Wrong(), b"").sample([1, 2, 3], 2, None, {})
