"""Tags survive as they were; the bytes have the form that the native core merges."""

from __future__ import annotations

import contextlib
import struct
from enum import Enum

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transferqueue.errors import CorruptSegmentError
from transferqueue.tag_maps import TagDecoder, encode_tags

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3) | st.tuples(inner)
    ),
    max_leaves=8,
)


class Colour(Enum):
    RED = 1


@given(st.dictionaries(st.text(max_size=20), plain, max_size=6))
def test_tags_come_back_as_they_were(tags: dict[str, object]) -> None:
    found = TagDecoder().decode(encode_tags(tags))
    assert found == tags
    assert {name: type(value) for name, value in found.items()} == {name: type(value) for name, value in tags.items()}


@pytest.mark.parametrize("value", [(1, 2), {1, 2}, {3: "x"}, 2**70, Colour.RED, np.float32(1.5), [(1,)], True, 1, 1.0])
def test_types_that_messagepack_does_not_have_survive(value: object) -> None:
    found = TagDecoder().decode(encode_tags({"value": value}))["value"]
    assert found == value
    assert type(found) is type(value)


def test_entries_are_sorted_by_name_and_counted() -> None:
    blob = encode_tags({"b": 1, "a": 2, "é": 3})
    assert struct.unpack_from("<I", blob) == (3,)
    names, at = [], 4
    for _ in range(3):
        (length,) = struct.unpack_from("<I", blob, at)
        names.append(blob[at + 4 : at + 4 + length])
        at += 4 + length
        (length,) = struct.unpack_from("<I", blob, at)
        at += 4 + length
    assert names == sorted(names) == [b"a", b"b", "é".encode()]
    assert at == len(blob)


def test_no_tags_are_no_bytes() -> None:
    assert encode_tags(None) == encode_tags({}) == b""
    assert TagDecoder().decode(b"") == {}


def test_rows_share_nothing() -> None:
    blob = encode_tags({"list": [1]})
    first, second, empty = TagDecoder().decode_all([blob, blob, b""])
    first["list"].append(2)
    assert second == {"list": [1]}
    assert empty == {}


def test_a_pickled_value_is_refused_where_pickle_is_off() -> None:
    blob = encode_tags({"value": {1, 2}})
    with pytest.raises(ValueError, match="allow_pickle"):
        TagDecoder(allow_pickle=False).decode(blob)
    for value in ([1, "x"], (1, [(2**70, "x")]), np.float32(1.5), np.complex128(1j), {3: (1,), None: "x"}, -(2**80)):
        found = TagDecoder(allow_pickle=False).decode(encode_tags({"value": value}))["value"]
        assert found == value
        assert type(found) is type(value)


class Unloadable:
    def __reduce__(self) -> tuple[object, ...]:
        return int, ("no number",)


def test_a_pickle_that_does_not_load_is_refused_before_it_is_stored() -> None:
    with pytest.raises(ValueError, match=r"'broken', a Unloadable, cannot be stored.*no number"):
        encode_tags({"broken": Unloadable()}, check_pickles=True)


@pytest.mark.parametrize("tags", [5, "text", [("a", 1)], {1: "x"}])
def test_what_is_no_dict_with_names_is_refused(tags: object) -> None:
    with pytest.raises(TypeError):
        encode_tags(tags)  # type: ignore[arg-type]


@given(st.binary(max_size=64))
def test_foreign_bytes_are_an_error_and_nothing_else(blob: bytes) -> None:
    with contextlib.suppress(ValueError, CorruptSegmentError):
        TagDecoder(allow_pickle=False).decode(blob)


@given(st.integers(0, 60), st.integers(0, 255))
def test_a_damaged_map_is_an_error_or_other_tags(at: int, byte: int) -> None:
    blob = bytearray(encode_tags({"name": "value", "other": [1, 2, 3], "third": 2.5}))
    blob[min(at, len(blob) - 1)] = byte
    with contextlib.suppress(ValueError, CorruptSegmentError):
        assert isinstance(TagDecoder(allow_pickle=False).decode(bytes(blob)), dict)


def test_names_in_any_order_and_rows_of_different_names_give_the_same_bytes() -> None:
    assert encode_tags({"b": 1, "a": 2}) == encode_tags({"a": 2, "b": 1})
    decoder = TagDecoder()
    rows = [
        {"a": 1, "ä": "x" * 300},
        {"ä": None, "a": b"y" * 255},
        {"a": -(2**63)},
        {"a": 2**64 - 1},
        {"z": 0.5, "a": True},
    ]
    assert decoder.decode_all(encode_tags(row) for row in rows) == rows


@pytest.mark.parametrize("text", [",", "f3", "i8,i8", "O", "(2)f4", "b99", 7])
def test_a_number_of_no_type_of_numpys_is_refused(text: object) -> None:
    value = msgspec.msgpack.encode(msgspec.msgpack.Ext(4, msgspec.msgpack.encode([text, b"12345678"])))
    blob = struct.pack("<II1sI", 1, 1, b"a", len(value)) + value
    with pytest.raises(CorruptSegmentError):
        TagDecoder(allow_pickle=False).decode(blob)
