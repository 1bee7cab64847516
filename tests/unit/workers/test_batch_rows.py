"""Splitting, joining and padding whole batches."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tensordict import NonTensorData, NonTensorStack, TensorDict

from transferqueue.errors import SchemaMismatchError
from transferqueue.workers.batch_rows import batch_rows, join_batches, keep_rows, pad_batch, split_batch, split_sizes


def batch(rows: int) -> TensorDict:
    return TensorDict(
        {
            "x": torch.arange(rows),
            "ragged": torch.nested.nested_tensor([torch.full((i,), i) for i in range(rows)], layout=torch.jagged),
            "uid": NonTensorStack(*(f"u{i}" for i in range(rows))),
            "config": NonTensorData({"t": 1}, batch_size=[rows]),
        },
        [rows],
    )


@pytest.mark.parametrize(("rows", "parts", "sizes"), [(10, 4, [3, 3, 2, 2]), (2, 4, [1, 1, 0, 0]), (0, 2, [0, 0])])
def test_sizes(rows: int, parts: int, sizes: list[int]) -> None:
    assert split_sizes(rows, parts) == sizes


@pytest.mark.parametrize(("rows", "parts"), [(10, 4), (2, 4), (1, 1), (8, 4)])
def test_split_and_joined_is_the_same(rows: int, parts: int) -> None:
    whole = batch(rows)
    pieces = split_batch(whole, parts)
    assert [batch_rows(piece) for piece in pieces] == split_sizes(rows, parts)
    assert all(piece["config"] == {"t": 1} for piece in pieces), "batch-wide values go to every piece, empty ones too"
    joined = join_batches(pieces)
    assert joined["x"].tolist() == list(range(rows))
    assert [row.tolist() for row in joined["ragged"].unbind()] == [[i] * i for i in range(rows)]
    assert joined["uid"] == [f"u{i}" for i in range(rows)]
    assert joined["config"] == {"t": 1}


def test_joining_nothing_but_empty_batches() -> None:
    assert batch_rows(join_batches(split_batch(batch(2), 2)[:0] or [TensorDict({}, [0]), TensorDict({}, [0])])) == 0


def test_different_fields_are_refused_with_both_lists() -> None:
    with pytest.raises(SchemaMismatchError, match=r"\['x'\] and \['y'\]"):
        join_batches([TensorDict({"x": torch.ones(1)}, [1]), TensorDict({"y": torch.ones(1)}, [1])])


def test_padding_repeats_the_last_row() -> None:
    padded, added = pad_batch(batch(5), 4)
    assert (added, padded["x"].tolist()) == (3, [0, 1, 2, 3, 4, 4, 4, 4])
    assert padded["uid"][-3:] == ["u4"] * 3
    same, added = pad_batch(batch(4), 4)
    assert (added, batch_rows(same)) == (0, 4)
    assert pad_batch(TensorDict({}, [0]), 4)[1] == 0


def test_keeping_rows() -> None:
    kept = keep_rows(batch(6), np.array([True, False, True, True, False, True]))
    assert kept["x"].tolist() == [0, 2, 3, 5]
    assert [row.tolist() for row in kept["ragged"].unbind()] == [[], [2, 2], [3, 3, 3], [5] * 5]
    assert batch_rows(keep_rows(batch(2), np.array([False, False]))) == 0


def test_a_batch_without_a_batch_dimension_is_refused() -> None:
    with pytest.raises(SchemaMismatchError, match="batch_size"):
        batch_rows(TensorDict({"x": torch.ones(1)}, []))
