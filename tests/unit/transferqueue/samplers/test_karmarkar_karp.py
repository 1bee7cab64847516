"""Splitting rows so that the sums of their lengths are close."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transferqueue.samplers import get_seqlen_balanced_partitions


def sums(lengths: list[int], parts: list[list[int]]) -> list[int]:
    return [sum(lengths[row] for row in part) for part in parts]


@pytest.mark.parametrize(
    ("lengths", "parts", "equal_size", "expected"),
    [
        ([4, 6, 7, 5, 8], 3, False, [11, 11, 8]),  # the example of the literature for three parts
        ([5, 5, 5, 4, 4, 3, 3, 1], 3, False, [11, 10, 9]),  # one where the method misses the optimum of 10, 10, 10
        ([10, 20, 30, 40], 2, True, [50, 50]),
        ([100, 90, 50, 10, 5, 1], 2, True, [141, 115]),
        ([10, 1, 1, 1], 2, False, [10, 3]),
        ([10, 1, 1, 1], 2, True, [11, 2]),
        ([100, 80, 60, 40, 20, 10], 3, True, [110, 100, 100]),
        ([50] * 4, 4, True, [50] * 4),
        ([7, 7], 1, False, [14]),
    ],
)
def test_known_splits(lengths: list[int], parts: int, equal_size: bool, expected: list[int]) -> None:
    split = get_seqlen_balanced_partitions(lengths, parts, equal_size)
    assert sums(lengths, split) == expected
    assert sorted(itertools.chain(*split)) == list(range(len(lengths)))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_every_row_is_in_one_part_and_no_part_is_empty(data: st.DataObject) -> None:
    k = data.draw(st.integers(1, 8), "parts")
    equal_size = data.draw(st.booleans(), "equal size")
    length = st.integers(0, 50)
    lengths = data.draw(st.lists(length, min_size=k, max_size=40).filter(lambda x: not equal_size or len(x) % k == 0))
    split = get_seqlen_balanced_partitions(lengths, k, equal_size)
    assert sorted(itertools.chain(*split)) == list(range(len(lengths)))
    assert len(split) == k
    assert all(part and part == sorted(part) for part in split)
    totals = sums(lengths, split)
    assert totals == sorted(totals, reverse=True)
    # What differencing guarantees, and a split in the order of the rows does not.
    assert totals[0] - totals[-1] <= max(lengths)
    if equal_size:
        assert {len(part) for part in split} == {len(lengths) // k}


def test_balance_is_better_than_in_order() -> None:
    lengths = [(row * 7919) % 4096 + 1 for row in range(512)]
    totals = sums(lengths, get_seqlen_balanced_partitions(lengths, 8, True))
    assert totals[0] - totals[-1] <= 2
    in_order = sums(lengths, [list(range(at, at + 64)) for at in range(0, 512, 64)])
    assert max(in_order) - min(in_order) > 100


def test_wrong_numbers_are_refused() -> None:
    with pytest.raises(AssertionError, match=r"number of items:\[1\] < k_partitions:\[3\]"):
        get_seqlen_balanced_partitions([10], 3, False)
    with pytest.raises(AssertionError, match="3 % 2 != 0"):
        get_seqlen_balanced_partitions([10, 20, 30], 2, True)
    for parts in (0, -1):
        with pytest.raises(ValueError, match="k_partitions must be positive"):
            get_seqlen_balanced_partitions([10], parts, False)
