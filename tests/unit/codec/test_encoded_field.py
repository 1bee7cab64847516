"""Where the fields of a block lie."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from transferqueue.codec.encoded_field import CACHE_LINE, OWN_PAGE_NBYTES, PAGE, EncodedField, place

nbytes = st.integers(0, 3 * OWN_PAGE_NBYTES) | st.sampled_from([OWN_PAGE_NBYTES - 1, OWN_PAGE_NBYTES])
rows = st.none() | st.integers(0, 20_000)


@given(st.lists(st.tuples(nbytes, rows), max_size=8))
def test_parts_do_not_overlap_and_large_ones_have_pages_of_their_own(parts: list[tuple[int, int | None]]) -> None:
    fields = [
        EncodedField(f"f{i}", b"", data_nbytes=size, offsets=None if n is None else np.zeros(n + 1, dtype=np.int64))
        for i, (size, n) in enumerate(parts)
    ]
    total = place(fields)
    taken = []
    for field in fields:
        taken.append((field.data_offset, field.data_nbytes))
        if field.offsets is not None:
            taken.append((field.offsets_offset, field.offsets.nbytes))
    taken.sort()
    padding = 0
    end = 0
    for start, size in taken:
        assert start % (PAGE if size >= OWN_PAGE_NBYTES else CACHE_LINE) == 0
        if size:
            assert start >= end
            padding += start - end
            end = start + size
    assert end <= total
    assert padding + total - end <= CACHE_LINE * (len(taken) + 1) + PAGE * sum(
        size >= OWN_PAGE_NBYTES for _, size in taken
    )
    # What shares a page with a large part would be mapped with it: nothing does.
    large = [(start, start + size) for start, size in taken if size >= OWN_PAGE_NBYTES]
    for start, stop in large:
        assert not any(size and other < stop and other + size > start // PAGE * PAGE and other != start
                       for other, size in taken)  # fmt: skip


def test_a_block_without_bytes_still_has_a_size() -> None:
    assert place([]) == 0
    assert place([EncodedField("x", b"", data_nbytes=0)]) == CACHE_LINE
