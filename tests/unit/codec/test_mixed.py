"""One field whose rows differ in type from put to put: the rule, case by case."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tensordict import NonTensorStack

from tests.unit.codec.compare import assert_same_rows, jagged, put_get, rows_of
from tests.unit.codec.fake_native import FakeStore
from transferqueue.codec import decode, plan_put


def strided(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.nested.nested_tensor([torch.rand(shape).to(dtype) for shape in shapes])


JAGGED = [
    ([torch.rand(2, 3), torch.rand(1, 5)], 1),
    ([torch.rand(2, 3), jagged(4, 1)], 1),
    ([torch.rand(2, 3), jagged(3, 3)], 1),
    ([torch.rand(2, 3, 4), torch.rand(1, 3, 6)], 2),
    ([torch.rand(2, 3, 4), jagged(3, 3, rest=(4,), dim=1)], 1),
    ([torch.rand(2, 3, 4), jagged(4, 4, rest=(3,), dim=2)], 2),
    ([jagged(2, 3, rest=(4,), dim=2), torch.rand(1, 4, 5)], 2),
    ([jagged(2, 2, rest=(4,), dim=1), jagged(4, 4, rest=(2,), dim=2)], 1),
    ([torch.rand(2, 3), strided((2,), (5,))], 1),
    ([torch.rand(2, 0), torch.rand(1, 3)], 1),
    ([torch.rand(2, 0, 4), torch.rand(1, 3, 4)], 1),
    ([torch.rand(2, 3, 0), torch.rand(1, 5, 0)], 1),
]


@pytest.mark.parametrize(("columns", "ragged"), JAGGED)
def test_one_differing_dimension_gives_jagged(columns: list[torch.Tensor], ragged: int) -> None:
    out = put_get(*({"x": column} for column in columns))["x"]
    assert out.layout is torch.jagged
    assert out._ragged_idx == ragged
    assert_same_rows(out, [row for column in columns for row in rows_of(column)])


STRIDED = [
    [torch.rand(2, 3, 4), torch.rand(1, 5, 6)],
    [jagged(2, 3, rest=(4,)), torch.rand(1, 2, 7)],
    [strided((2, 3), (4, 5)), strided((2, 3))],
    [strided((2,), (3,)), strided((4,))],
    [strided((2, 3), (4, 3)), strided((2, 5), (2, 4))],
    [strided((2, 3), (4, 5)), torch.rand(1, 2, 3)],
]


@pytest.mark.parametrize("columns", STRIDED)
def test_strided_stays_and_more_differing_dimensions_give_strided(columns: list[torch.Tensor]) -> None:
    out = put_get(*({"x": column} for column in columns))["x"]
    assert out.is_nested
    assert out.layout is torch.strided
    assert out.is_contiguous()
    assert_same_rows(out, [row for column in columns for row in rows_of(column)])


STACKS: list[list[Any]] = [
    [torch.rand(2, 3), torch.rand(2, 3).double()],
    [torch.rand(2, 3), torch.randint(0, 5, (2, 3))],
    [torch.rand(2, 3), torch.rand(1, 3, 4)],
    [torch.rand(2), torch.rand(2, 3)],
    [jagged(1, 2), jagged(1, 2, dtype=torch.float16)],
    [strided((2, 3), (4, 5)), strided((2,), (3,))],
    [[torch.ones(2), torch.ones(3)], torch.ones(2, 4)],
    [torch.ones(2, 3), ["a", None]],
    [["a", "b"], [{1: 2}, (3,)]],
    [np.array(["a", "bb"]), np.array(["ccc"]), ["d"]],
    [np.array(["a"]), np.array([b"a"]), np.array(["2020"], dtype="datetime64[Y]")],
]


@pytest.mark.parametrize("columns", STACKS)
def test_anything_else_is_a_stack_of_the_rows_as_they_are(columns: list[Any]) -> None:
    out = put_get(*({"x": column} for column in columns)).get("x")
    assert isinstance(out, NonTensorStack)
    assert_same_rows(out, [row for column in columns for row in rows_of(column)])


def test_rows_put_one_by_one_with_lengths_of_their_own_take_one_copy() -> None:
    """What rollouts do: each response dense, of its own length."""
    store = FakeStore()
    rows = [torch.arange(3 + i % 5) + i for i in range(40)]
    for row in rows:
        store.put(plan_put({"x": row[None]}))
    resolved = store.resolve([*range(39, -1, -1)])
    calls = []
    original = resolved.copy_rows
    resolved.copy_rows = lambda *arguments: calls.append(1) or original(*arguments)  # type: ignore[method-assign, func-returns-value]
    out, viewed, copied = decode(resolved, mode="cow", copy_below=1, allow_pickle=False)  # type: ignore[arg-type]
    assert len(calls) == 1
    assert (viewed, copied) == (0, sum(row.numel() * 8 for row in rows))
    assert out["x"].layout is torch.jagged
    assert_same_rows(out["x"], rows[::-1])


def test_nested_paths_follow_the_first_row() -> None:
    out = put_get({"a": {"b": torch.ones(2)}}, {"a/b": torch.zeros(1)})
    assert out["a", "b"].tolist() == [1, 1, 0]
