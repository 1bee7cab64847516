"""How a request is cut: every byte is in one stretch of one part, whatever the sizes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transferqueue.nodes.transport.stream_plan import (
    LARGE_PIECE_NBYTES,
    FieldBytes,
    Stretch,
    part_bounds,
    stretches,
)

SIZES = st.one_of(st.integers(0, 50), st.sampled_from([0, 1000, 40_000, LARGE_PIECE_NBYTES, 300_000]))


def field(sizes: list[int], cuts: list[int]) -> FieldBytes:
    """Of rows of these sizes; pieces begin at `cuts`."""
    starts = np.concatenate(([0], np.cumsum(np.array(sizes, np.int64)))).astype(np.int64)
    rows = sorted({0, len(sizes), *(cut % (len(sizes) + 1) for cut in cuts)})
    return FieldBytes(starts, np.array(rows, np.int64))


FIELDS = st.lists(st.builds(field, st.lists(SIZES, min_size=1, max_size=30), st.lists(st.integers(0, 30))), max_size=4)


@settings(deadline=None, max_examples=150)
@given(FIELDS, st.integers(1, 7), st.sampled_from([1 << 16, 100_000, 1 << 20]))
def test_all_bytes_are_sent_once(fields: list[FieldBytes], parts: int, chunk_nbytes: int) -> None:
    sent: list[list[tuple[int, int]]] = [[] for _ in fields]
    end = 0
    for part in range(parts):
        first, last = part_bounds(fields, part, parts)
        assert first == end
        end = last
        for stretch in stretches(fields, first, last, chunk_nbytes):
            check(fields[stretch.field], stretch, chunk_nbytes)
            sent[stretch.field].append((stretch.start, stretch.nbytes))
    assert end == sum(each.nbytes for each in fields)
    for each, pieces in zip(fields, sent, strict=True):
        at = 0
        for start, nbytes in pieces:
            assert start == at
            assert nbytes > 0
            at += nbytes
        assert at == each.nbytes


def check(of: FieldBytes, stretch: Stretch, chunk_nbytes: int) -> None:
    bounds = of.starts[of.piece_rows]
    if stretch.piece >= 0:
        assert bounds[stretch.piece] <= stretch.start
        assert stretch.start + stretch.nbytes <= bounds[stretch.piece + 1]
        assert stretch.nbytes <= chunk_nbytes
        return
    first, behind = stretch.rows
    assert (of.starts[first], of.starts[behind]) == (stretch.start, stretch.start + stretch.nbytes)
    assert stretch.nbytes <= chunk_nbytes or behind == first + 1


@pytest.mark.parametrize("parts", [2, 3, 5])
def test_parts_are_about_as_large_as_each_other(parts: int) -> None:
    fields = [field([4096] * 1000, []), field([1 << 20] * 4, []), field([5] * 1000, list(range(1000)))]
    sizes = [last - first for first, last in (part_bounds(fields, part, parts) for part in range(parts))]
    assert max(sizes) - min(sizes) <= 8192


def test_the_cuts_do_not_depend_on_where_rows_lie() -> None:
    sizes = [7, 70_000, 0, 123, 9000] * 20
    several, one = field(sizes, list(range(0, 100, 3))), field(sizes, [])
    assert [part_bounds([several], part, 4) for part in range(4)] == [part_bounds([one], part, 4) for part in range(4)]
