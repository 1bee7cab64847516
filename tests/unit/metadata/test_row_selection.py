"""Checks of positions, permutations and splits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transferqueue.metadata.row_selection import as_permutation, as_positions, chunk_slices, item_positions


def test_positions_from_anything_that_holds_ints() -> None:
    for given_positions in ([2, 0], (2, 0), np.array([2, 0], dtype=np.uint8), range(2, -1, -2)):
        positions = as_positions(given_positions, 3)
        assert positions.dtype == np.int64
        assert positions.tolist() == [2, 0]
    assert as_positions([], 0).tolist() == []
    assert as_positions(np.array([True, False, True]), 3).tolist() == [0, 2]


@pytest.mark.parametrize("wrong", ["ab", b"ab", 3, None, [[1]], [1.0], ["a"], [None], [1, [2]]], ids=repr)
def test_what_holds_no_ints(wrong: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        as_positions(wrong, 3)


def test_messages_are_bounded() -> None:
    with pytest.raises(ValueError) as error:
        as_positions(range(10_000), 3)
    assert len(str(error.value)) < 200


@given(st.permutations(range(8)))
def test_permutations_pass(order: list[int]) -> None:
    assert as_permutation(order, 8).tolist() == order


@given(st.lists(st.integers(-2, 5), max_size=6))
def test_what_is_no_permutation_is_refused(order: list[int]) -> None:
    if sorted(order) == [0, 1, 2, 3]:
        assert as_permutation(order, 4).tolist() == order
        return
    with pytest.raises(ValueError, match="reorder"):
        as_permutation(order, 4)


@given(st.integers(0, 50), st.integers(1, 60))
def test_chunks_cover_all_rows_in_order(size: int, chunks: int) -> None:
    slices = chunk_slices(size, chunks)
    assert [row for part in slices for row in range(size)[part]] == list(range(size))
    assert [part.stop - part.start for part in slices] == [size // chunks + (i < size % chunks) for i in range(chunks)]


@given(st.data(), st.integers(0, 10))
def test_items_select_what_a_list_would(data: st.DataObject, size: int) -> None:
    item = data.draw(st.slices(size))
    assert np.arange(size)[item_positions(item, size, "x")].tolist() == list(range(size))[item]
    if size:
        number = data.draw(st.integers(-size, size - 1))
        assert np.arange(size)[item_positions(number, size, "x")].tolist() == [list(range(size))[number]]
