"""KVBatchMeta: the errors of the interface page, and that order, tags and session survive every operation."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.metadata.builders import kv_of, shipped
from transferqueue.metadata import KVBatchMeta


def test_everything_is_optional_and_copied() -> None:
    empty = KVBatchMeta()
    assert (empty.keys, empty.tags, empty.partition_id, empty.fields, empty.extra_info) == ([], [], None, None, {})
    assert empty.size == len(empty) == 0
    assert not empty
    assert KVBatchMeta.empty() == empty
    keys, tags, fields, info = ["a"], [{"l": [1]}], ["f"], {"l": [1]}
    meta = KVBatchMeta(keys, tags, "p", fields, info)
    keys.append("b")
    tags[0]["l"].append(2)
    fields.append("g")
    info["l"].append(2)
    assert meta == KVBatchMeta(["a"], [{"l": [1]}], "p", ["f"], {"l": [1]})
    assert KVBatchMeta(keys=["a"], tags=[{}], partition_id="p", fields=None, extra_info=None).extra_info == {}  # type: ignore[arg-type]


def test_attributes_may_be_reassigned() -> None:
    meta = kv_of(["a", "b"])
    meta.fields = ["z"]
    meta.tags = [{"x": 1}, {"x": 2}]
    meta.extra_info = {"step": 1}
    meta.partition_id = "q"
    back = shipped(meta)[1]
    assert (back.keys, back.tags, back.fields, back.partition_id) == (["b"], [{"x": 2}], ["z"], "q")
    assert dataclasses.replace(meta, fields=["y"]).fields == ["y"]
    meta.keys = ["only"]
    for use in (shipped, KVBatchMeta.copy, lambda m: m.chunk(2), lambda m: m.reorder([0]), lambda m: m.concat([m])):
        with pytest.raises(ValueError, match="one was reassigned"):
            use(meta)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"keys": ["a"], "tags": []}, "keys and tags must have same length"),
        ({"keys": ["a"]}, "keys and tags must have same length"),
        ({"keys": ["a", "b", "a"], "tags": [{}] * 3}, "Got duplicated keys: 'a'"),
        ({"keys": ["a"], "tags": [{}], "fields": ["f", "f"]}, "Got duplicated fields: 'f'"),
    ],
    ids=str,
)
def test_constructor_errors(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        KVBatchMeta(**arguments)


def test_keys_are_strings() -> None:
    for keys in ("abc", [1], [b"a"], [None]):
        with pytest.raises(TypeError, match="keys must be"):
            KVBatchMeta(keys, [{}])  # type: ignore[arg-type]
    meta = shipped(KVBatchMeta(list(np.array(["x", "y"])), [{}, {}]))
    assert [type(key) for key in meta.keys] == [str, str]
    odd = ["", "\0", "k" * 10_000, "ü€😀"]
    assert shipped(KVBatchMeta(odd, [{}] * 4)).keys == odd


def test_select_keys() -> None:
    meta = kv_of(["a", "b", "c"], extra_info={"k": [1]})
    picked = meta.select_keys(["c", "a"])
    assert picked.keys == ["c", "a"]
    assert picked.tags == [{"row": 2}, {"row": 0}]
    assert (picked.partition_id, picked.fields, picked.session) == ("p", ["a", "b"], "s")
    picked.extra_info["k"].append(2)
    assert meta.extra_info == {"k": [1]}
    with pytest.raises(ValueError, match="Contain duplicate keys: 'a'"):
        meta.select_keys(["a", "a"])
    with pytest.raises(RuntimeError, match="not found in current batch: 'zz'"):
        meta.select_keys(["a", "zz"])
    assert meta.select_keys([]).size == 0
    padded = kv_of(["a", "b"]).pad_to_divisor(3)
    assert padded.select_keys(["b"]).num_padding == 0


def test_select_and_items() -> None:
    meta = kv_of(["a", "b", "c"])
    assert meta.select([2, 0]).keys == ["c", "a"]
    assert meta.select(np.array([False, True, False])).keys == ["b"]
    assert meta[-1].keys == ["c"]
    assert meta[:2].tags == [{"row": 0}, {"row": 1}]
    assert meta[::-1].keys == ["c", "b", "a"]
    with pytest.raises(ValueError, match=r"must be in range \[0, 3\)"):
        meta.select([3])
    with pytest.raises(ValueError, match="Got duplicated keys"):
        meta.select([1, 1])
    with pytest.raises(IndexError, match="KVBatchMeta index 3"):
        meta[3]
    with pytest.raises(TypeError, match="indexing KVBatchMeta"):
        meta["a"]  # type: ignore[index]


def test_reorder_is_in_place() -> None:
    meta = kv_of(["a", "b", "c"])
    tags = list(meta.tags)
    assert meta.reorder([2, 0, 1]) is None
    assert meta.keys == ["c", "a", "b"]
    assert meta.tags[0] is tags[2]
    for indexes, message in (
        ([0, 1], "does not match"),
        ([0, 0, 1], "Contain duplicate indexes"),
        ([0, 1, 5], "range"),
    ):
        with pytest.raises(ValueError, match=message):
            meta.reorder(indexes)
    assert meta.keys == ["c", "a", "b"]


def test_concat_errors_name_both_sides() -> None:
    meta = kv_of(["a"])
    with pytest.raises(ValueError, match=r"Field names do not match: \['a', 'b'\] and \['c'\]"):
        KVBatchMeta.concat([meta, kv_of(["b"], fields=["c"])])
    with pytest.raises(ValueError, match="Partition do not match: 'p' in the first piece, 'q' in number 1"):
        KVBatchMeta.concat([meta, kv_of(["b"], partition_id="q")])
    with pytest.raises(ValueError, match="different sessions, 's' and 't'"):
        KVBatchMeta.concat([meta, kv_of(["b"], session="t")])
    with pytest.raises(ValueError, match="Got duplicated keys: 'a'"):
        KVBatchMeta.concat([meta, kv_of(["a"])])
    with pytest.raises(ValueError, match="'x' has conflicting values"):
        KVBatchMeta.concat([kv_of(["a"], extra_info={"x": 1}), kv_of(["b"], extra_info={"x": 2})], on_conflict="raise")


def test_concat() -> None:
    first = kv_of(["a"], fields=["x", "y"], extra_info={"loss": 1.0, "cfg": "c"})
    second = kv_of(["b"], fields=["y", "x"], extra_info={"loss": 3.0}, session=None)
    third = kv_of(["c"], fields=None, extra_info={"loss": 5.0, "more": [1]})
    joined = KVBatchMeta.concat([KVBatchMeta(), first, second, third])
    assert joined.keys == ["a", "b", "c"]
    assert joined.tags == [{"row": 0}] * 3
    assert joined.fields == ["x", "y"]
    assert joined.session == "s"
    assert joined.extra_info == {"loss": [1.0, 3.0, 5.0], "cfg": "c", "more": [1]}
    assert KVBatchMeta.concat([first, second, third], reduce={"loss": "mean"}).extra_info["loss"] == 3.0
    joined.tags[0]["row"] = 9
    assert first.tags == [{"row": 0}]
    assert KVBatchMeta.concat([kv_of(["a"], fields=None), second]).fields == ["y", "x"]
    assert KVBatchMeta.concat([first, kv_of(["b"], fields=["q"])], validate=False).fields == ["x", "y"]


def test_concat_of_nothing() -> None:
    assert KVBatchMeta.concat([]) == KVBatchMeta()
    assert KVBatchMeta.concat([KVBatchMeta(), KVBatchMeta()]) == KVBatchMeta()
    kept = KVBatchMeta.concat(kv_of([], extra_info={"k": 1}).chunk(3))
    assert kept == kv_of([], extra_info={"k": 1})


def test_more_pieces_than_rows() -> None:
    """Field case 1, by keys."""
    meta = kv_of(["a", "b"], extra_info={"k": 1})
    pieces = meta.chunk(4)
    assert [piece.size for piece in pieces] == [1, 1, 0, 0]
    for piece in pieces[2:]:
        assert (piece.fields, piece.partition_id, piece.session) == (["a", "b"], "p", "s")
        assert shipped(piece) == piece.copy() == piece.select_keys([]) == piece.select([]) == piece.chunk(2)[1] == piece
        piece.reorder([])
        assert KVBatchMeta.concat([piece, meta, piece]) == meta
    assert KVBatchMeta.concat(pieces) == meta


def test_pieces_share_nothing_mutable_with_their_parent() -> None:
    meta = kv_of(["a", "b"], tags=[{"l": []}, {"l": []}], extra_info={"l": []})
    for piece in (
        *meta.chunk(1),
        meta[:],
        meta.copy(),
        copy.copy(meta),
        copy.deepcopy(meta),
        meta.select_keys(["a", "b"]),
    ):
        piece.tags[0]["l"].append(1)
        piece.extra_info["l"].append(1)
        piece.keys.append("c")
        assert piece.fields is not None
        piece.fields.append("z")
    assert meta == kv_of(["a", "b"], tags=[{"l": []}, {"l": []}], extra_info={"l": []})


def test_equality_and_repr() -> None:
    meta = kv_of(["a", "b"])
    assert meta == kv_of(["a", "b"])
    for change in (
        {"session": "t"},
        {"tags": [{}, {}]},
        {"partition_id": "q"},
        {"fields": ["b", "a"]},
        {"extra_info": {"x": 1}},
    ):
        assert meta != kv_of(["a", "b"], **change)
    assert meta != kv_of(["b", "a"])
    assert meta != kv_of(["a", "b"]).pad_to_divisor(3)[:2].pad_to_divisor(4)
    assert meta != ["a", "b"]
    assert len(repr(kv_of([f"key-{i}" for i in range(10_000)]))) < 300


KEYS = st.lists(st.text(max_size=4), unique=True, max_size=15)


@settings(max_examples=80, deadline=None)
@given(data=st.data(), keys=KEYS, pieces=st.integers(1, 20))
def test_chunk_concat_select_and_reorder_follow_a_list(data: st.DataObject, keys: list[str], pieces: int) -> None:
    meta = kv_of(keys, extra_info={"k": 1})
    parts = meta.chunk(pieces)
    assert [key for part in parts for key in part.keys] == keys
    assert KVBatchMeta.concat([shipped(part) for part in parts]) == meta
    order = data.draw(st.permutations(range(len(keys))))
    wanted = order[: data.draw(st.integers(0, len(keys)))]
    assert meta.select(wanted).tags == [{"row": position} for position in wanted]
    assert meta.select_keys([keys[position] for position in wanted]) == meta.select(wanted)
    meta.reorder(order)
    assert list(zip(meta.keys, meta.tags, strict=True)) == [(keys[position], {"row": position}) for position in order]
