"""The int64 codec gives every sequence back, costs what it promises, and refuses what is forged."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transferqueue.errors import CorruptSegmentError
from transferqueue.metadata import index_ranges
from transferqueue.metadata.index_ranges import MAX_ROWS, decode_int64, encode_int64

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


def round_trip(values: np.ndarray) -> bytes:
    data = encode_int64(values)
    back = decode_int64(data, len(values))
    assert back.dtype == np.int64
    assert back.tolist() == values.tolist()
    assert back.flags.writeable
    return data


@settings(max_examples=150, deadline=None)
@given(
    st.one_of(
        st.lists(INT64, max_size=40),
        st.lists(st.integers(0, 300), max_size=60),
        st.builds(
            lambda a, n, s: list(range(a, a + n * s, s)),
            st.integers(0, 1 << 40),
            st.integers(1, 50),
            INT64.filter(lambda step: 0 < abs(step) < 1 << 30),
        ),
    )
)
def test_any_sequence_comes_back(values: list[int]) -> None:
    round_trip(np.array(values, dtype=np.int64))


def test_contiguous_rows_cost_the_same_at_any_count() -> None:
    sizes = [len(round_trip(np.arange(10**9, 10**9 + count))) for count in (1 << 9, 1 << 12, 1 << 20)]
    assert max(sizes) <= 12
    assert sizes[2] - sizes[0] <= 1


def test_regular_strides_and_repeats_are_runs() -> None:
    assert len(round_trip(np.arange(0, 80_000, 8))) <= 12
    assert len(round_trip(np.concatenate((np.arange(1000), np.full(24, 999))))) <= 12
    # Two hundred groups of 8, scattered: a few bytes per group, not per row.
    starts = np.sort(np.random.default_rng(0).choice(10_000, 200, replace=False)) * 8
    assert len(round_trip((starts[:, None] + np.arange(8)).ravel())) <= 200 * 6


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("span_bits", [13, 20, 32, 39])
def test_scattered_rows_cost_at_most_five_bytes(span_bits: int, ordered: bool) -> None:
    rng = np.random.default_rng(span_bits)
    values = np.unique(rng.integers(0, 1 << span_bits, 4096)) + 10**12
    if not ordered:
        rng.shuffle(values)
    assert len(round_trip(values)) <= 5 * len(values)


def test_one_outlier_does_not_widen_all() -> None:
    values = np.concatenate((np.random.default_rng(1).choice(1 << 16, 4000, replace=False), [1 << 60]))
    assert len(round_trip(np.sort(values))) <= 2 * len(values) + 32


def test_bit_packing_over_several_steps() -> None:
    values = np.random.default_rng(2).integers(0, 1 << 35, (1 << 14) * 2 + 5)
    assert len(round_trip(values)) <= 35 * len(values) // 8 + 16


@pytest.mark.parametrize(
    ("data", "count"),
    [
        (b"", 1),
        (b"R\x00", 0),
        (b"X\x00", 1),
        (b"R", 1),
        (b"R\x80", 1),  # ends within a number
        (b"R\x00\x02", 3),  # a difference without its count
        (b"R\x00\x02\x00", 1),  # a run of nothing
        (b"R\x00\x02\x05", 4),  # runs longer than the batch
        (b"D\x00\x02", 3),
        (b"D" + b"\xff" * 10 + b"\x01", 1),  # more than 64 bits
        (b"D" + b"\xff" * 9 + b"\x02", 1),
        (b"O" + bytes(8) + b"\x41" + bytes(100), 3),  # 65 bits a value
        (b"O" + bytes(8) + b"\x08" + bytes(2), 3),
        (b"R\x00\x02\x7f", MAX_ROWS + 1),
        (b"", -1),
    ],
)
def test_forged_bytes_are_refused(data: bytes, count: int) -> None:
    with pytest.raises(CorruptSegmentError):
        decode_int64(data, count)


@settings(max_examples=200, deadline=None)
@given(INT64, st.one_of(INT64, st.sampled_from((0, 1, -1))), st.integers(1, 40))
def test_one_run_is_written_and_read_as_by_the_general_code(first: int, step: int, count: int) -> None:
    """The short way is a short cut: same bytes, same values, for steps that wrap around too."""
    with np.errstate(over="ignore"):
        values = (np.arange(count).view(np.uint64) * np.uint64(step % 2**64) + np.uint64(first % 2**64)).view(np.int64)
    data = round_trip(values)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_ranges, "_one_run", lambda values: None)
        patch.setattr(index_ranges, "_read_run", lambda data, count: None)
        assert encode_int64(values) == data
        assert decode_int64(data, count).tolist() == values.tolist()


def test_equal_values_are_no_run_with_a_step() -> None:
    """Whoever takes a run for rows of their own (`decode_run`) does not take one row many times for one."""
    assert index_ranges.decode_run(encode_int64(np.full(9, 7)), 9) is None
    assert index_ranges.decode_run(encode_int64(np.arange(7, 16)), 9) == (7, 1)


@settings(max_examples=200, deadline=None)
@given(st.binary(min_size=1, max_size=26), st.integers(1, 300))
def test_a_forged_run_is_read_or_refused_as_by_the_general_code(body: bytes, count: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_ranges, "_read_run", lambda data, count: None)
        expected = _values_or_refusal(b"R" + body, count)
    assert _values_or_refusal(b"R" + body, count) == expected


def _values_or_refusal(data: bytes, count: int) -> list[int] | None:
    try:
        with np.errstate(over="ignore"):
            return list(decode_int64(data, count).tolist())
    except CorruptSegmentError:
        return None
