"""Dicts per row: short form and back, and what a short form may not do."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transferqueue.errors import CorruptSegmentError
from transferqueue.metadata.row_dicts import MOST_REPEATED, RowDictsOnWire, is_plain, pack_row_dicts, unpack_row_dicts

VALUES = st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=2) | st.lists(st.integers(0, 2), max_size=2)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from("ab"), VALUES, max_size=2), max_size=8))
def test_rows_come_back(rows: list[dict[str, Any]]) -> None:
    packed, beside = pack_row_dicts(rows)
    assert beside is None
    back = unpack_row_dicts(packed, len(rows))
    if not any(rows):
        assert back is None
        return
    assert back is not None
    assert back == rows
    assert [list(row) for row in back] == [list(row) for row in rows]
    assert [[type(value) for value in row.values()] for row in back] == [
        [type(v) for v in row.values()] for row in rows
    ]


def test_constants_are_written_once_and_not_shared() -> None:
    packed, _ = pack_row_dicts([{"c": [1], "v": row} for row in range(3)])
    assert packed == RowDictsOnWire(keys=["c", "v"], same={"c": [1]}, columns=[[0, 1, 2]])
    rows = unpack_row_dicts(packed, 3)
    assert rows is not None
    rows[0]["c"].append(2)
    assert rows[1]["c"] == [1]


@pytest.mark.parametrize("rows", [[{"a": (1,)}], [{"a": 1}, {"b": {1}}], [{1: "a"}], [{"a": 1}, {1: "a"}]], ids=repr)
def test_what_is_not_plain_is_handed_back(rows: list[dict[Any, Any]]) -> None:
    assert pack_row_dicts(rows) == (None, rows)


def test_depth_is_limited() -> None:
    value: Any = 1
    for _ in range(16):
        value = [value]
    assert is_plain(value)
    assert not is_plain([value])


@pytest.mark.parametrize(
    "packed",
    [
        RowDictsOnWire(rows=[{}]),
        RowDictsOnWire(keys=["a"]),
        RowDictsOnWire(keys=["a"], columns=[[1]]),
        RowDictsOnWire(keys=["a"], columns=[[1, 2], [1, 2]]),
        RowDictsOnWire(columns=[[1, 2]]),
        RowDictsOnWire(),
    ],
    ids=repr,
)
def test_forms_that_do_not_fit_the_rows_are_refused(packed: RowDictsOnWire) -> None:
    with pytest.raises(CorruptSegmentError):
        unpack_row_dicts(packed, 2)


@pytest.mark.parametrize("constant", [7, "x" * 4096, [[1]] * 300], ids=["number", "text", "list"])
def test_a_few_bytes_are_not_dicts_for_millions_of_rows(constant: Any) -> None:
    packed = RowDictsOnWire(keys=["a"], same={"a": constant})
    with pytest.raises(CorruptSegmentError, match="larger than any that are written"):
        unpack_row_dicts(packed, 1 << 24)


@pytest.mark.parametrize(("constant", "once"), [(7, MOST_REPEATED), ([[1]] * 300, MOST_REPEATED // 604)])
def test_what_many_rows_share_is_written_by_row_from_some_size_on(constant: Any, once: int) -> None:
    for rows, shared in [(once, True), (once + 1, False)]:
        packed, _ = pack_row_dicts([{"a": constant}] * rows)
        assert packed is not None
        assert (packed.same == {"a": constant}) == shared
        assert unpack_row_dicts(packed, rows) == [{"a": constant}] * rows
