"""Union of fields and concatenation of rows."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.unit.metadata.builders import DENSE, JAGGED, OBJECTS, meta_of, shipped
from transferqueue.errors import SchemaMismatchError
from transferqueue.metadata import BatchMeta


def test_union_joins_columns_and_the_right_side_wins() -> None:
    """Field case 4, same rows."""
    left = meta_of(
        range(4),
        field_schema={"a": DENSE, "m": DENSE},
        production_status=[1, 1, 0, 0],
        extra_info={"x": 1, "y": 1},
        custom_meta=[{"u": 1, "v": 1}, {}, {}, {}],
    )
    right = meta_of(
        range(4),
        field_schema={"b": DENSE, "m": JAGGED},
        production_status=[1, 0, 1, 0],
        extra_info={"y": 2},
        custom_meta=[{"v": 2}, {"w": 3}, {}, {}],
    )
    both = left.union(right)
    assert both.field_names == ["a", "b", "m"]
    assert both.field_schema["m"]["is_nested"]
    assert both.production_status.tolist() == [1, 0, 0, 0]
    assert both.extra_info == {"x": 1, "y": 2}
    assert both.custom_meta == [{"u": 1, "v": 2}, {"w": 3}, {}, {}]
    assert left.field_names == ["a", "m"]
    assert left.extra_info == {"x": 1, "y": 1}
    assert meta_of([1]).union(meta_of([1], "c")).is_ready
    assert not meta_of([1]).union(meta_of([1], "c", production_status=None)).is_ready


def test_union_of_other_rows_is_refused_with_both_lists() -> None:
    """Field case 4, different rows."""
    with pytest.raises(ValueError, match=r"global_indexes do not match: \[1, 2\] and \[3, 4\].*concat"):
        meta_of([1, 2]).union(meta_of([3, 4]))
    with pytest.raises(ValueError, match="global_indexes do not match"):
        meta_of([1, 2]).union(meta_of([2, 1]))
    with pytest.raises(ValueError, match=r"partition_ids do not match: \['p'\] and \['q'\]"):
        meta_of([1, 2]).union(meta_of([1, 2], partition_ids="q"))
    with pytest.raises(ValueError, match="different sessions, 's' and 't'"):
        meta_of([1, 2]).union(meta_of([1, 2], session="t"))


def test_union_with_an_empty_side_is_a_copy_of_the_other() -> None:
    meta = meta_of([1, 2], extra_info={"k": [1]})
    for both in (meta.union(BatchMeta()), BatchMeta().union(meta)):
        assert both == meta
        both.extra_info["k"].append(2)
    assert meta.extra_info == {"k": [1]}
    assert BatchMeta(session="s").union(meta_of([1], session=None)).session == "s"


def test_concat_of_empty_pieces() -> None:
    """Field case 2."""
    three = meta_of([4, 9, 5], extra_info={"k": 1})
    assert BatchMeta.concat([BatchMeta.empty(), three, BatchMeta.empty(extra_info={"other": 1})]) == three
    for nothing in (BatchMeta.concat([BatchMeta(), BatchMeta()]), BatchMeta.concat([])):
        assert isinstance(nothing, BatchMeta)
        assert nothing == BatchMeta()
    kept = BatchMeta.concat(three[0:0].chunk(3))
    assert kept.field_names == ["a", "b"]
    assert kept.extra_info == {"k": 1}
    assert kept.session == "s"


def test_keys_known_only_to_some_pieces_are_kept() -> None:
    """Field case 6: metrics of every worker survive, and the first worker is not special."""
    infos: list[dict[str, Any]] = [
        {"cfg": "c", "loss": 0.1, "count": 4},
        {"loss": 0.2, "count": 4},
        {"extra": [1], "loss": 0.3, "count": 4},
        {"loss": 0.6, "count": 4},
    ]
    pieces = [shipped(meta_of([rank], extra_info=info)) for rank, info in enumerate(infos)]
    assert BatchMeta.concat(pieces).extra_info == {
        "cfg": "c",
        "loss": [0.1, 0.2, 0.3, 0.6],
        "count": 4,
        "extra": [1],
    }
    reduced = BatchMeta.concat(pieces, reduce={"loss": "mean", "count": "sum", "no such": "max"})
    assert reduced.extra_info == {"cfg": "c", "loss": pytest.approx(0.3), "count": 16, "extra": [1]}
    with pytest.raises(ValueError, match=r"'loss' has conflicting values.*0.1 in the first, 0.2 in number 1"):
        BatchMeta.concat(pieces, on_conflict="raise")
    assert BatchMeta.concat(pieces[1:2] * 2, on_conflict="raise").extra_info == {"loss": 0.2, "count": 4}


def test_concat_names_both_field_lists() -> None:
    with pytest.raises(SchemaMismatchError, match=r"field_names.*\['a', 'b'\] in the first, \['a', 'c'\] in number 1"):
        BatchMeta.concat([meta_of([1]), meta_of([2], "ac")])
    with pytest.raises(ValueError, match="dtype mismatch in field 'a': float32 in the first piece, int8 in number 2"):
        BatchMeta.concat([meta_of([1], "a"), meta_of([2], "a"), meta_of([3], field_schema={"a": {"dtype": "int8"}})])
    unchecked = BatchMeta.concat([meta_of([1]), meta_of([2], "ac")], validate=False)
    assert unchecked.field_names == ["a", "b"]
    assert unchecked.size == 2


def test_concat_of_two_sessions_is_refused_with_both_names() -> None:
    with pytest.raises(ValueError, match="different sessions, 's' and 't'"):
        BatchMeta.concat([meta_of([1]), meta_of([2], session="t")])
    assert BatchMeta.concat([meta_of([1], session=None), meta_of([2])]).session == "s"


def test_mixed_nested_and_dense_becomes_nested() -> None:
    dense = meta_of([1, 2], field_schema={"x": {"dtype": "int64", "shape": (5,)}})
    nested = meta_of([3], field_schema={"x": {**JAGGED, "per_sample_shapes": [(7,)]}})
    for pieces, shapes in (([dense, nested], [(5,), (5,), (7,)]), ([nested, dense], [(7,), (5,), (5,)])):
        joined = shipped(BatchMeta.concat(pieces))
        assert joined.field_schema["x"]["is_nested"]
        assert joined.field_schema["x"]["shape"] == (-1,)
        assert joined.field_schema["x"]["per_sample_shapes"] == shapes
    other_width = meta_of([3], field_schema={"x": {"dtype": "int64", "shape": (6,)}})
    joined = BatchMeta.concat([dense, other_width])
    assert joined.field_schema["x"]["is_nested"]
    assert joined.get_shapes("x") == [(5,), (5,), (6,)]
    other_rank = meta_of([3], field_schema={"x": {"dtype": "int64", "shape": (6, 2)}})
    joined = BatchMeta.concat([dense, other_rank])
    assert joined.field_schema["x"]["shape"] is None
    assert shipped(joined).get_shapes("x") == [(5,), (5,), (6, 2)]


def test_concat_keeps_order_partitions_states_and_row_dicts() -> None:
    first = meta_of([9, 1], partition_ids=["p", "q"], production_status=[1, 0], custom_meta=[{"n": 9}, {"n": 1}])
    second = meta_of([5], partition_ids="q", custom_meta=None)
    third = meta_of([0], partition_ids="r", custom_meta=[{"n": 0}])
    joined = BatchMeta.concat([first, second, third])
    assert joined.global_indexes == [9, 1, 5, 0]
    assert joined.partition_ids == ["p", "q", "q", "r"]
    assert joined.production_status.tolist() == [1, 0, 1, 1]
    assert joined.custom_meta == [{"n": 9}, {"n": 1}, {}, {"n": 0}]
    joined.custom_meta[0]["n"] = 7
    assert first.custom_meta[0] == {"n": 9}


def test_non_tensor_columns_join() -> None:
    pieces = [meta_of([rank], field_schema={"o": OBJECTS}) for rank in range(3)]
    joined = BatchMeta.concat(pieces)
    assert joined.field_schema["o"] == {"dtype": None, "shape": None, "is_nested": False, "is_non_tensor": True}
    assert joined.get_shapes("o") == [None] * 3
    assert joined.get_dtypes("o") == [None] * 3


def test_tensors_in_extra_info_are_compared_and_collected() -> None:
    same = [meta_of([rank], extra_info={"t": torch.tensor([1.0, float("nan")])}) for rank in range(2)]
    assert BatchMeta.concat(same).extra_info["t"].shape == (2,)
    differ = [meta_of([rank], extra_info={"t": torch.tensor([float(rank)])}) for rank in range(2)]
    assert [t.item() for t in BatchMeta.concat(differ).extra_info["t"]] == [0.0, 1.0]
    assert BatchMeta.concat(differ, reduce={"t": "mean"}).extra_info["t"].tolist() == [0.5]
