"""Pads fill a batch up, follow their row everywhere, and come off again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.metadata.builders import kv_of, meta_of, shipped
from transferqueue.metadata import BatchMeta, KVBatchMeta

KINDS = pytest.mark.parametrize("kind", [BatchMeta, KVBatchMeta], ids=["rows", "keys"])


def make(kind: type, rows: int) -> Any:
    return meta_of(range(rows)) if kind is BatchMeta else kv_of([f"k{i}" for i in range(rows)])


def rows_of(meta: BatchMeta | KVBatchMeta) -> list[int]:
    return meta.global_indexes if isinstance(meta, BatchMeta) else [int(key[1:]) for key in meta.keys]


@KINDS
def test_pads_repeat_the_last_row(kind: type) -> None:
    meta = make(kind, 7)
    padded = meta.pad_to_divisor(4)
    assert rows_of(padded) == [0, 1, 2, 3, 4, 5, 6, 6]
    assert padded.num_padding == 1
    assert padded.padding_mask.tolist() == [False] * 7 + [True]
    assert padded.session == "s"
    assert meta.size == 7
    assert meta.num_padding == 0
    assert meta.padding_mask.dtype == np.bool_
    assert padded.unpad() == meta
    assert "num_padding=1" in repr(padded)


@KINDS
def test_what_needs_no_pads_gets_none(kind: type) -> None:
    assert make(kind, 8).pad_to_divisor(4) == make(kind, 8)
    assert make(kind, 0).pad_to_divisor(4).size == 0
    assert make(kind, 3).unpad() == make(kind, 3)
    for divisor, error in ((0, ValueError), (-2, ValueError), (1.5, TypeError), (True, TypeError)):
        with pytest.raises(error, match="divisor must be"):
            make(kind, 3).pad_to_divisor(divisor)


@KINDS
def test_pads_may_land_in_several_pieces(kind: type) -> None:
    padded = make(kind, 2).pad_to_divisor(4).pad_to_divisor(8)
    pieces = [shipped(piece) for piece in padded.chunk(4)]
    assert [piece.num_padding for piece in pieces] == [0, 2, 2, 2]
    assert [piece.unpad().size for piece in pieces] == [2, 0, 0, 0]
    joined = kind.concat(pieces)  # type: ignore[attr-defined]
    assert joined == padded
    assert joined.unpad() == make(kind, 2)


@KINDS
def test_the_mask_is_a_copy(kind: type) -> None:
    padded = make(kind, 3).pad_to_divisor(2)
    padded.padding_mask[:] = False
    assert padded.num_padding == 1


def test_union_keeps_pads() -> None:
    padded = meta_of(range(3)).pad_to_divisor(2)
    assert padded.union(padded).num_padding == 1
    assert padded.union(padded.select_fields(["a"])).unpad().size == 3


def test_keys_assigned_anew_have_no_pads() -> None:
    padded = kv_of(["a", "b", "c"]).pad_to_divisor(2)
    padded.keys, padded.tags = ["x", "y"], [{}, {}]
    assert padded.num_padding == 0
    assert shipped(padded).keys == ["x", "y"]


@settings(max_examples=80, deadline=None)
@given(
    data=st.data(), rows=st.integers(0, 12), divisor=st.integers(1, 6), kind=st.sampled_from([BatchMeta, KVBatchMeta])
)
def test_flags_follow_their_rows(data: st.DataObject, rows: int, divisor: int, kind: type) -> None:
    meta = make(kind, rows)
    padded = meta.pad_to_divisor(divisor)
    assert padded.size % divisor == 0
    assert padded.size - rows == padded.num_padding < divisor
    assert padded.unpad() == meta
    order = data.draw(st.permutations(range(padded.size)))
    pieces = data.draw(st.integers(1, 5))
    padded.reorder(order)
    model = [(min(position, rows - 1), position >= rows) for position in order]
    for part in (padded, kind.concat(padded.chunk(pieces)), shipped(padded)):  # type: ignore[attr-defined]
        assert list(zip(rows_of(part), part.padding_mask.tolist(), strict=True)) == model
    assert sorted(rows_of(padded.unpad())) == list(range(rows))
