"""BatchMeta by itself: construction, attributes, selection, splitting, order."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.metadata.builders import DENSE, JAGGED, kv_of, meta_of, shipped, w_meta
from transferqueue.metadata import BatchMeta, KVBatchMeta


def test_nothing_is_needed_to_make_an_empty_one() -> None:
    for meta in (BatchMeta(), BatchMeta.empty(), BatchMeta([], [])):
        assert meta.size == len(meta) == 0
        assert not meta
        assert not meta.is_ready
        assert meta.field_names == []
        assert meta.global_indexes == []
        assert meta.partition_ids == []
        assert meta.production_status.shape == (0,)
        assert meta.custom_meta == []
    assert BatchMeta.empty(extra_info={"a": 1}).extra_info == {"a": 1}


def test_attributes_have_the_constructors_names() -> None:
    meta = BatchMeta(
        [4, 2],
        ["p", "q"],
        {"b": DENSE, "a": {"dtype": torch.bfloat16, "shape": torch.Size([2, 2])}},
        np.array([1, 0]),
        {"step": 3},
        [{"uid": "x"}, {}],
        [{}, {"a": {"address": 1}}],
        session="s",
    )
    assert list(meta.global_indexes) == [4, 2]
    assert all(type(index) is int for index in meta.global_indexes)
    assert meta.index_array.dtype == np.int64
    assert meta.partition_ids == ["p", "q"]
    assert meta.partition_names == ("p", "q")
    assert meta.field_names == ["a", "b"]
    assert meta.field_schema["a"]["dtype"] is torch.bfloat16
    assert meta.field_schema["a"]["shape"] == (2, 2)
    assert meta.production_status.dtype == np.int8
    assert meta.production_status.tolist() == [1, 0]
    assert meta.extra_info == {"step": 3}
    assert meta.custom_meta == [{"uid": "x"}, {}]
    assert meta._custom_backend_meta == [{}, {"a": {"address": 1}}]
    assert meta.session == "s"
    assert meta
    assert not meta.is_ready


def test_later_changes_of_the_inputs_have_no_effect() -> None:
    indexes, partitions, status = np.array([1, 2]), ["p", "p"], np.ones(2, dtype=np.int8)
    schema, info, custom = {"a": {"dtype": "int8", "shape": [1]}}, {"l": [1]}, [{"x": [1]}, {}]
    meta = BatchMeta(indexes, partitions, schema, status, info, custom)
    indexes[0], partitions[0], status[0] = 9, "q", 0
    schema["a"]["shape"].append(2)  # type: ignore[attr-defined]
    info["l"].append(2)
    custom[0]["x"].append(2)
    assert meta == BatchMeta([1, 2], "p", {"a": {"dtype": "int8", "shape": (1,)}}, [1, 1], {"l": [1]}, [{"x": [1]}, {}])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"partition_ids": ["p"]}, "1 names do not match 2"),
        ({"production_status": np.ones(3)}, "does not match 2 rows"),
        ({"production_status": np.ones((3, 1))}, "does not match 2 rows"),
        ({"custom_meta": [{}]}, "custom_meta: 1 dicts do not match 2"),
        ({"_custom_backend_meta": [{}] * 3}, "_custom_backend_meta: 3 dicts"),
        ({"field_schema": {"a": {"per_sample_shapes": [(1,)]}}}, "'a': 1 per_sample_shapes"),
        ({"global_indexes": [-1, 2]}, "negative"),
        ({"global_indexes": [[1, 2]]}, "one-dimensional"),
    ],
    ids=str,
)
def test_lengths_are_checked(arguments: dict[str, Any], message: str) -> None:
    valid: dict[str, Any] = {"global_indexes": [1, 2], "partition_ids": ["p", "p"]}
    with pytest.raises(ValueError, match=message):
        BatchMeta(**(valid | arguments))


@pytest.mark.parametrize("indexes", [[1.5], ["a"], [True], [None]])
def test_indexes_are_ints(indexes: list[Any]) -> None:
    with pytest.raises(TypeError, match="must be ints"):
        BatchMeta(indexes, "p")


def test_status_per_field_becomes_status_per_row() -> None:
    meta = meta_of([1, 2, 3], production_status=np.array([[1, 1], [1, 0], [0, 0]]))
    assert meta.production_status.tolist() == [1, 0, 0]
    assert meta_of([1, 2]).is_ready
    assert BatchMeta([1], "p", {"a": DENSE}).production_status.tolist() == [0]


def test_writing_the_status_changes_this_batch_only() -> None:
    meta = meta_of(range(4))
    piece = meta[1:3]
    meta.production_status[1] = 0
    assert not meta.is_ready
    assert piece.is_ready
    assert meta[1:3].production_status.tolist() == [0, 1]
    meta.production_status = [1, 1, 1, 1]
    assert meta.is_ready


def test_items() -> None:
    meta = meta_of(range(10, 16))
    assert meta[2].global_indexes == [12]
    assert meta[-1].global_indexes == [15]
    assert meta[np.int64(1)].global_indexes == [11]
    assert meta[1:3].global_indexes == [11, 12]
    assert meta[::-2].global_indexes == [15, 13, 11]
    assert meta[4:2].size == 0
    assert meta[4:2].field_names == ["a", "b"]
    for outside in (6, -7):
        with pytest.raises(IndexError, match="out of range for 6 rows"):
            meta[outside]
    for item in ("a", [0], None, 1.0, True, np.array([0])):
        with pytest.raises(TypeError, match="not supported"):
            meta[item]  # type: ignore[index]


def test_select_samples() -> None:
    meta = meta_of(range(10, 16))
    for positions in ([3, 0], (3, 0), np.array([3, 0]), torch.tensor([3, 0])):
        assert meta.select_samples(positions).global_indexes == [13, 10]
    assert meta.select_samples(np.array([True, False, False, False, False, True])).global_indexes == [10, 15]
    assert meta.select_samples([]).size == 0
    for outside in ([6], [-1], [0, 100]):
        with pytest.raises(ValueError, match=r"must be in range \[0, 6\)"):
            meta.select_samples(outside)
    with pytest.raises(ValueError, match="mask of 2 entries does not fit 6"):
        meta.select_samples(np.array([True, False]))
    for other in ([0.0], ["a"], "12", [[0]], 3):
        with pytest.raises(TypeError):
            meta.select_samples(other)  # type: ignore[arg-type]


def test_more_pieces_than_rows() -> None:
    """Field case 1: every empty piece is metadata that all later calls accept."""
    meta = meta_of([5, 6], extra_info={"k": 1}, custom_meta=[{"x": 1}, {}], field_schema={"a": DENSE, "j": JAGGED})
    pieces = meta.chunk(4)
    assert [piece.size for piece in pieces] == [1, 1, 0, 0]
    for piece in pieces[2:]:
        assert piece.field_names == ["a", "j"]
        assert piece.session == "s"
        assert piece.partition_ids == []
        assert not piece.is_ready
        assert piece.chunk(3)[2] == piece.copy() == piece[0:0] == piece.select_samples([]) == shipped(piece) == piece
        assert piece.union(piece) == piece
        assert piece.select_fields(["a"]).field_names == ["a"]
        assert piece.chunk_by_partition() == []
        assert piece.get_shapes("a") == piece.get_shapes("j") == piece.get_dtypes("a") == []
        assert list(piece.samples) == []
        assert piece.pad_to_divisor(4).size == 0
        piece.reorder([])
        piece.update_custom_meta([])
        assert piece.get_all_custom_meta() == []
        assert BatchMeta.concat([piece, meta, piece]) == meta
    assert BatchMeta.concat(pieces) == meta


def test_chunk_sizes_and_bad_counts() -> None:
    assert [piece.size for piece in meta_of(range(10)).chunk(4)] == [3, 3, 2, 2]
    for count in (0, -1):
        with pytest.raises(ValueError, match="at least 1"):
            meta_of([1]).chunk(count)
    with pytest.raises(TypeError, match="must be an int"):
        meta_of([1]).chunk(1.5)  # type: ignore[arg-type]


def test_chunk_by_partition() -> None:
    meta = meta_of(range(5), partition_ids=["q", "p", "q", "r", "p"])
    pieces = meta.chunk_by_partition()
    assert [(piece.partition_names, piece.global_indexes) for piece in pieces] == [
        (("q",), [0, 2]),
        (("p",), [1, 4]),
        (("r",), [3]),
    ]
    assert BatchMeta.concat(pieces).partition_ids == ["q", "q", "p", "p", "r"]
    assert meta.select_samples([4, 3]).partition_names == ("p", "r")


def test_pieces_share_nothing_mutable_with_their_parent() -> None:
    meta = meta_of(range(4), extra_info={"l": [1], "t": torch.zeros(2)}, custom_meta=[{"d": {}} for _ in range(4)])
    for piece in (*meta.chunk(1), meta[0:4], meta.copy(), copy.copy(meta), copy.deepcopy(meta), meta.union(meta)):
        piece.extra_info["l"].append(2)
        piece.extra_info["t"].fill_(1)
        piece.custom_meta[0]["d"]["x"] = 1
        piece.production_status[0] = 0
        piece.add_schema({"new": DENSE})
        piece.global_indexes[0] = 99
    assert meta.extra_info["l"] == [1]
    assert meta.extra_info["t"].tolist() == [0, 0]
    assert meta.custom_meta == [{"d": {}}] * 4
    assert meta.field_names == ["a", "b"]
    assert meta.is_ready
    assert meta.global_indexes == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="read-only"):
        meta.index_array[0] = 9


def test_reorder_is_in_place_and_keeps_everything_with_its_row() -> None:
    meta = BatchMeta(
        [1, 2, 3],
        ["p", "q", "p"],
        {"j": {**JAGGED, "per_sample_shapes": [(1,), (2,), (3,)]}},
        [1, 0, 1],
        {"k": 1},
        [{"n": 1}, {"n": 2}, {"n": 3}],
        session="s",
    )
    info, rows = meta.extra_info, meta.custom_meta
    assert meta.reorder([2, 0, 1]) is None
    assert meta.global_indexes == [3, 1, 2]
    assert meta.partition_ids == ["p", "p", "q"]
    assert meta.production_status.tolist() == [1, 1, 0]
    assert meta.get_shapes("j") == [(3,), (1,), (2,)]
    assert [row["n"] for row in meta.custom_meta] == [3, 1, 2]
    assert meta.extra_info is info
    assert meta.custom_meta[0] is rows[2]


@pytest.mark.parametrize(
    ("indices", "message"),
    [([0, 1], "does not match"), ([0, 0, 1], "duplicate"), ([0, 1, 3], "range"), ([0, 1, -1], "range")],
)
def test_reorder_takes_a_permutation(indices: list[int], message: str) -> None:
    meta = meta_of(range(3))
    with pytest.raises(ValueError, match=message):
        meta.reorder(indices)
    assert meta.global_indexes == [0, 1, 2]


def test_extra_info_accessors() -> None:
    meta = meta_of([1], extra_info={"a": [1]})
    meta.set_extra_info("b", 2)
    meta.update_extra_info({"c": 3})
    assert meta.get_extra_info("b") == 2
    assert meta.get_extra_info("zz") is None
    assert meta.get_extra_info("zz", 7) == 7
    assert meta.has_extra_info("c")
    assert meta.remove_extra_info("c") == 3
    assert meta.remove_extra_info("c") is None
    assert not meta.has_extra_info("c")
    everything = meta.get_all_extra_info()
    everything["a"].append(2)
    assert meta.extra_info == {"a": [1], "b": 2}
    meta.extra_info = {"n": 1}
    assert meta.get_all_extra_info() == {"n": 1}
    meta.clear_extra_info()
    assert meta.extra_info == {}


def test_custom_meta_accessors() -> None:
    meta = meta_of([1, 2])
    meta.update_custom_meta(None)
    meta.update_custom_meta([{"a": 1}, {}])
    meta.update_custom_meta([{"b": [2]}, {"a": 3}])
    assert meta.custom_meta == [{"a": 1, "b": [2]}, {"a": 3}]
    everything = meta.get_all_custom_meta()
    everything[0]["b"].append(9)
    assert meta.custom_meta[0]["b"] == [2]
    with pytest.raises(ValueError, match="3 dicts do not match the 2 rows"):
        meta.update_custom_meta([{}] * 3)
    meta.clear_custom_meta()
    assert meta.custom_meta == [{}, {}]
    meta.custom_meta = [{"x": 1}, {}]
    assert meta[0].custom_meta == [{"x": 1}]


def test_state_tuple_in_the_order_of_slots() -> None:
    meta = meta_of([3, 4], custom_meta=[{"x": 1}, {}], extra_info={"k": 1}).pad_to_divisor(3)
    state = tuple(getattr(meta, name) for name in BatchMeta.__slots__)
    assert BatchMeta.__slots__[:4] == ("global_indexes", "partition_ids", "field_schema", "production_status")
    state[3].flags.writeable = False
    for values in (state, meta.__getstate__()):
        back = BatchMeta.__new__(BatchMeta)
        back.__setstate__(values)
        assert back == meta
        back.production_status[0] = 0
        assert meta.is_ready
    short = BatchMeta.__new__(BatchMeta)
    short.__setstate__(([1], ["p"], {"a": DENSE}, np.ones(1, dtype=np.int8)))
    assert short.is_ready


def test_equality_is_by_value() -> None:
    meta = meta_of([1, 2], extra_info={"x": float("nan")})
    assert meta == meta_of([1, 2], extra_info={"x": float("nan")})
    different: list[dict[str, Any]] = [
        {"session": "t"},
        {"partition_ids": "q"},
        {"extra_info": {}},
        {"production_status": None},
        {"custom_meta": [{"a": 1}, {}]},
        {"field_schema": {"a": DENSE}},
    ]
    for change in different:
        assert meta != meta_of([1, 2], **({"extra_info": {"x": float("nan")}} | change))
    assert meta != meta_of([2, 1], extra_info={"x": float("nan")})
    assert meta != "meta"
    with pytest.raises(TypeError, match="unhashable"):
        hash(meta)


def test_repr_is_bounded() -> None:
    text = repr(w_meta(np.arange(100_000)))
    assert "size=100000" in text
    assert "'input_ids'" in text
    assert len(text) < 500


def test_from_keys_to_rows_and_back_after_reorder_and_split() -> None:
    """Field case 13: the order of keys survives the way over rows."""
    index_of = {f"key-{i}": i * 37 % 11 for i in range(11)}
    key_of = {index: key for key, index in index_of.items()}
    kv = kv_of(list(index_of))
    order = [3, 1, 10, 0, 2, 9, 8, 4, 7, 5, 6]
    rows = BatchMeta([index_of[key] for key in kv.keys], "p", custom_meta=kv.tags)
    rows.reorder(order)
    kv.reorder(order)
    back = [
        KVBatchMeta([key_of[index] for index in piece.global_indexes], piece.custom_meta, "p", ["a", "b"], session="s")
        for piece in map(shipped, rows.chunk(4))
    ]
    assert KVBatchMeta.concat(back) == kv
    assert [piece.keys for piece in back] == [piece.keys for piece in kv.chunk(4)]


ROWS = st.lists(st.integers(0, 1 << 40), max_size=20)


def _drawn_meta(data: st.DataObject) -> tuple[BatchMeta, list[tuple[Any, ...]]]:
    """A batch and its rows as plain tuples."""
    indexes = data.draw(ROWS)
    rows = [
        (
            index,
            data.draw(st.sampled_from("pq")),
            data.draw(st.integers(0, 1)),
            {"n": data.draw(st.integers(0, 3))},
            (n,),
        )
        for n, index in enumerate(indexes)
    ]
    meta = BatchMeta(
        indexes,
        [row[1] for row in rows],
        {"j": {**JAGGED, "per_sample_shapes": [row[4] for row in rows]}, "a": DENSE},
        [row[2] for row in rows],
        {"k": "v"},
        [row[3] for row in rows],
        session="s",
    )
    return meta, rows


def _rows_of(meta: BatchMeta) -> list[tuple[Any, ...]]:
    return list(
        zip(
            meta.global_indexes,
            meta.partition_ids,
            meta.production_status.tolist(),
            meta.custom_meta,
            meta.get_shapes("j"),
            strict=True,
        )
    )


@settings(max_examples=80, deadline=None)
@given(data=st.data(), pieces=st.integers(1, 25))
def test_chunk_then_concat_is_identity(data: st.DataObject, pieces: int) -> None:
    meta, rows = _drawn_meta(data)
    parts = meta.chunk(pieces)
    sizes = [part.size for part in parts]
    assert len(parts) == pieces
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)
    assert BatchMeta.concat(parts) == meta
    assert BatchMeta.concat([shipped(part) for part in parts]) == meta
    assert [row for part in parts for row in _rows_of(part)] == rows


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_select_and_reorder_follow_a_list(data: st.DataObject) -> None:
    meta, rows = _drawn_meta(data)
    positions = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=30)) if rows else []
    assert _rows_of(meta.select_samples(positions)) == [rows[position] for position in positions]
    part = data.draw(st.slices(len(rows)))
    assert _rows_of(meta[part]) == rows[part]
    order = data.draw(st.permutations(range(len(rows))))
    meta.reorder(order)
    assert _rows_of(meta) == [rows[position] for position in order]
    assert meta.partition_names == tuple(dict.fromkeys(row[1] for row in _rows_of(meta)))
