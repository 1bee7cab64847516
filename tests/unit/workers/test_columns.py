"""Splitting and joining one column by rows."""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import pytest
import torch
from tensordict import LazyStackedTensorDict, NonTensorData, NonTensorStack, TensorDict

from transferqueue.errors import SchemaMismatchError
from transferqueue.workers.columns import join_columns, take_rows


def rows_of(column: Any) -> list[Any]:
    return [row.tolist() for row in column.unbind()] if isinstance(column, torch.Tensor) else column.tolist()


def jagged(lengths: list[int], dim: int = 1) -> torch.Tensor:
    offsets = torch.tensor([0, *lengths]).cumsum(0)
    values = torch.arange(int(offsets[-1]) * 2).reshape(2, -1) if dim == 2 else torch.arange(int(offsets[-1]))
    return torch.nested.nested_tensor_from_jagged(values, offsets=offsets, jagged_dim=dim)


COLUMNS = {
    "dense": torch.arange(15).reshape(5, 3),
    "bfloat16": torch.arange(5).to(torch.bfloat16),
    "no elements": torch.zeros(5, 0),
    "expanded": torch.arange(3).expand(5, 3),
    "transposed": torch.arange(15).reshape(3, 5).t(),
    "jagged": jagged([3, 0, 2, 1, 4]),
    "jagged of equal lengths": jagged([2, 2, 2, 2, 2]),
    "jagged, ragged dimension 2": jagged([3, 1, 2, 1, 4], dim=2),
    "jagged with holes": torch.nested.nested_tensor_from_jagged(
        torch.arange(20), offsets=torch.tensor([0, 4, 8, 12, 16, 20]), lengths=torch.tensor([1, 2, 3, 4, 0])
    ),
    "strided nested": torch.nested.nested_tensor([torch.ones(i + 1, 2) * i for i in range(5)], layout=torch.strided),
    "strings": NonTensorStack("a", "b", "b", "d", "e"),
    "equal strings": NonTensorStack("s", "s", "s", "s", "s"),
    "dicts": NonTensorStack(*(NonTensorData({"i": i}) for i in range(5))),
    "lists": NonTensorStack(*(NonTensorData([i, i]) for i in range(5))),
}


@pytest.mark.parametrize("name", list(COLUMNS))
@pytest.mark.parametrize("cuts", [(0, 5), (0, 2, 5), (0, 1, 1, 3, 5), (0, 0, 5, 5)])
def test_taken_and_joined_again_is_the_same(name: str, cuts: tuple[int, ...]) -> None:
    column = COLUMNS[name]
    ranges = list(itertools.pairwise(cuts))
    pieces = [take_rows(column, start, stop) for start, stop in ranges]
    assert [len(rows_of(piece)) for piece in pieces] == [stop - start for start, stop in ranges]
    filled = [piece for piece in pieces if len(rows_of(piece))]
    joined = join_columns("f", filled)
    assert rows_of(joined) == rows_of(column)
    if isinstance(column, torch.Tensor):
        assert (joined.dtype, joined.layout, joined.is_nested) == (column.dtype, column.layout, column.is_nested)


def test_a_taken_piece_carries_its_own_bytes_only() -> None:
    for column in (torch.zeros(1000, 1000), jagged([1000] * 1000)):
        piece = take_rows(column, 0, 1)
        assert len(pickle.dumps(TensorDict({"x": piece}, [1]))) < 40_000


def test_autograd_history_stays_behind() -> None:
    column = torch.ones(4, requires_grad=True) * 2
    assert not take_rows(column, 0, 2).requires_grad
    assert not join_columns("x", [column, column]).requires_grad


def test_dense_and_jagged_pieces_join_to_a_jagged_column() -> None:
    joined = join_columns("x", [torch.zeros(2, 3, dtype=torch.int64), jagged([1, 2])])
    assert rows_of(joined) == [[0, 0, 0], [0, 0, 0], [0], [1, 2]]


def test_batch_wide_values_stay_one_or_become_a_list() -> None:
    one = join_columns("c", [NonTensorData(1, batch_size=[2]), NonTensorData(1, batch_size=[3])])
    assert (one.data, tuple(one.batch_size)) == (1, (5,))
    many = join_columns("c", [NonTensorData(0.1, batch_size=[2]), NonTensorData(0.2, batch_size=[3])])
    assert many.data == [0.1, 0.2]


def test_nested_and_stacked_batches() -> None:
    nested = TensorDict({"a": torch.arange(4), "b": TensorDict({"c": torch.arange(4)}, [4])}, [4])
    piece = take_rows(nested, 1, 3)
    assert (piece["a"].tolist(), piece["b", "c"].tolist()) == ([1, 2], [1, 2])
    assert join_columns("n", [piece, take_rows(nested, 3, 4)])["b", "c"].tolist() == [1, 2, 3]
    stack = LazyStackedTensorDict(*(TensorDict({"a": torch.zeros(i)}, []) for i in range(3)))
    assert [row["a"].numel() for row in join_columns("s", [take_rows(stack, 2, 3), take_rows(stack, 0, 2)])] == [
        2,
        0,
        1,
    ]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (torch.zeros(1, 2), torch.zeros(1, 3)),
        (torch.zeros(1), torch.zeros(1, dtype=torch.int64)),
        (torch.zeros(1), NonTensorStack("a")),
    ],
)
def test_pieces_that_do_not_fit_are_refused_by_name(left: Any, right: Any) -> None:
    with pytest.raises(SchemaMismatchError, match="'rewards'") as caught:
        join_columns("rewards", [left, right])
    assert caught.value.fields == ("rewards",)
