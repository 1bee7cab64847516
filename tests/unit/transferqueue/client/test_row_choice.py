"""Choosing and joining rows of batches in memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tensordict import NonTensorData, NonTensorStack, TensorDict

from transferqueue.client.row_choice import choose_rows, join_rows
from transferqueue.errors import SchemaMismatchError


def batch(start: int, rows: int) -> TensorDict:
    numbers = range(start, start + rows)
    return TensorDict(
        {
            "dense": torch.tensor([[n, -n] for n in numbers]),
            "jagged": torch.nested.nested_tensor([torch.full((n % 3, 2), n) for n in numbers], layout=torch.jagged),
            "late": torch.nested.nested_tensor_from_jagged(
                torch.arange(2 * rows).reshape(2, rows), torch.arange(rows + 1), jagged_dim=2
            ),
            "strided": torch.nested.nested_tensor([torch.full((n, 2), 1.0) for n in numbers], layout=torch.strided),
            "text": NonTensorStack(*[f"row {n}" for n in numbers]),
            "inner": TensorDict({"leaf": torch.tensor(list(numbers))}, [rows]),
        },
        batch_size=[rows],
    )


def check(found: TensorDict | dict[str, object], numbers: list[int]) -> None:
    assert found["dense"].tolist() == [[n, -n] for n in numbers]  # type: ignore[attr-defined]
    assert [row.tolist() for row in found["jagged"].unbind()] == [[[n, n]] * (n % 3) for n in numbers]  # type: ignore[attr-defined]
    assert found["jagged"].layout == torch.jagged  # type: ignore[attr-defined]
    assert [row.shape for row in found["late"].unbind()] == [(2, 1)] * len(numbers)  # type: ignore[attr-defined]
    assert [row.shape for row in found["strided"].unbind()] == [(n, 2) for n in numbers]  # type: ignore[attr-defined]
    assert list(found["text"]) == [f"row {n}" for n in numbers]  # type: ignore[call-overload]
    assert found["inner"]["leaf"].tolist() == numbers  # type: ignore[index]


@pytest.mark.parametrize("rows", [[0, 1, 2], [3, 0], [2], [1, 1]])
def test_choosing(rows: list[int]) -> None:
    check(choose_rows(batch(5, 4), np.array(rows)), [5 + row for row in rows])


def test_choosing_nothing_keeps_types() -> None:
    found = choose_rows(batch(0, 3), np.array([], dtype=np.int64))
    assert found["dense"].shape == (0, 2)
    assert found["jagged"].shape[0] == 0
    assert found["text"] == []


def test_values_of_the_batch_stay() -> None:
    data = TensorDict({"x": torch.arange(3), "c": NonTensorData("constant", batch_size=[3])}, [3])
    assert choose_rows(data, np.array([1]))["c"].data == "constant"


def test_joining_in_any_order() -> None:
    pieces = [batch(0, 2), batch(2, 3)]
    check(join_rows(pieces, np.array([4, 0, 2, 1, 3])), [4, 0, 2, 1, 3])
    check(join_rows(pieces, np.arange(5)), [0, 1, 2, 3, 4])


@pytest.mark.parametrize(
    "other", [torch.zeros(2), torch.zeros(2, 3, dtype=torch.int64), torch.nested.nested_tensor([torch.ones(1)] * 2)]
)
def test_rows_of_different_types_are_refused_by_name(other: torch.Tensor) -> None:
    first, second = TensorDict({"x": torch.zeros(2, 2, dtype=torch.int64)}, [2]), TensorDict({"x": other}, [2])
    with pytest.raises(SchemaMismatchError, match=r"'x'.*chunk_by_partition"):
        join_rows([first, second], np.arange(4))
