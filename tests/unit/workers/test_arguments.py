"""Which rank gets which argument."""

from __future__ import annotations

import pytest

from transferqueue.workers.arguments import Broadcast, PerRank, arguments_for_ranks, value_for_rank


def test_lists_as_long_as_the_group_are_spread_when_all_are() -> None:
    assert arguments_for_ranks([[1, 2]], {"k": ["a", "b"]}, 2) == [((1,), {"k": "a"}), ((2,), {"k": "b"})]


@pytest.mark.parametrize("other", [5, [1, 2, 3], (1, 2), None])
def test_else_everything_is_broadcast(other: object) -> None:
    assert arguments_for_ranks([[1, 2], other], {}, 2) == [(([1, 2], other), {})] * 2


def test_explicit_values() -> None:
    assert arguments_for_ranks([PerRank([1, 2]), 7], {"k": [3, 4]}, 2) == [
        ((1, 7), {"k": [3, 4]}),
        ((2, 7), {"k": [3, 4]}),
    ]
    assert arguments_for_ranks([Broadcast([1, 2])], {}, 2) == [(([1, 2],), {})] * 2


def test_no_arguments() -> None:
    assert arguments_for_ranks([], {}, 3) == [((), {})] * 3


def test_a_per_rank_of_another_length_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="PerRank for k has 3 elements; the group has 2 ranks"):
        arguments_for_ranks([1], {"k": PerRank([1, 2, 3])}, 2)


def test_value_for_rank() -> None:
    assert [value_for_rank(value, 1) for value in (PerRank("ab"), Broadcast("ab"), "ab")] == ["b", "ab", "ab"]
