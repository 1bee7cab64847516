"""Plain Python values: exactly what was put, or not this form."""

from __future__ import annotations

import enum
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.codec.compare import assert_same_rows, put_get
from transferqueue.codec import plan_put
from transferqueue.codec import schema as forms
from transferqueue.codec.field_tree import Leaf
from transferqueue.codec.schema import read_schema
from transferqueue.codec.values import encode_values, is_exact


class Color(enum.IntEnum):
    RED = 1


class Text(str):
    pass


NOT_EXACT: list[Any] = [
    (1, 2),
    [(1,)],
    {1: 2},
    {"a": {None: 1}},
    2**64,
    -(2**63) - 1,
    [2**64],
    Color.RED,
    Text("a"),
    OrderedDict(a=1),
    np.float64(1.0),
    np.int64(1),
    bytearray(b"a"),
    {1},
    1j,
]


@pytest.mark.parametrize("value", NOT_EXACT, ids=repr)
def test_what_msgpack_would_change_takes_another_form_and_comes_back_as_it_was(value: Any) -> None:
    assert not is_exact(value)
    rows = ["a", value]
    assert read_schema(plan_put({"x": rows}).layouts[0].schema).form == forms.OBJECTS
    assert_same_rows(put_get({"x": rows}, allow_pickle=True)["x"], rows)


@pytest.mark.parametrize("value", [2**64 - 1, -(2**63), -0.0, float("inf"), "", b"\0", [], {}, [[None]], {"a": [{}]}])
def test_what_it_keeps(value: Any) -> None:
    assert is_exact(value)
    assert_same_rows(put_get({"x": [value, value]})["x"], [value, value])


def test_text_that_is_no_text_and_rows_that_hold_themselves() -> None:
    lone = ["\ud800", "b"]
    assert_same_rows(put_get({"x": lone}, allow_pickle=True)["x"], lone)
    endless: list[Any] = [1]
    endless.append(endless)
    back = put_get({"x": [endless]}, allow_pickle=True)["x"][0]
    assert back[0] == 1
    assert back[1] is back


@given(st.lists(st.text() | st.text(st.characters(max_codepoint=127)), min_size=1, max_size=40))
def test_the_short_way_for_text_gives_the_offsets_of_the_long_way(rows: list[str]) -> None:
    short, each = encode_values(Leaf("x"), rows), encode_values(Leaf("x"), [*rows, None])
    assert short is not None
    assert each is not None
    assert short.offsets.tolist() == each.offsets.tolist()[:-1]  # type: ignore[union-attr]


@pytest.mark.parametrize("length", [0, 1, 31, 32, 255, 256, 65535, 65536])
@pytest.mark.parametrize("count", [1, 15, 16, 70])
def test_text_at_the_borders_of_msgpacks_headers(length: int, count: int) -> None:
    rows = ["x" * length] * count
    assert put_get({"x": rows}, rows=[count - 1, 0])["x"] == [rows[0], rows[0]]


def test_more_rows_than_a_short_array_header_holds() -> None:
    rows = [str(i) for i in range(70_000)]
    assert list(put_get({"x": rows})["x"]) == rows
