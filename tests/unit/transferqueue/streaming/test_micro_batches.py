"""Slices of batches: the rows are right whatever the layout, and tensors share the batch's memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensordict import NonTensorStack, TensorDict

from transferqueue.streaming.micro_batches import slice_rows

RAGGED = [torch.arange(6.0).view(3, 2), torch.zeros(0, 2), torch.ones(1, 2), torch.full((4, 2), 5.0)]


def jagged_second() -> Any:
    """Rows [2, length]."""
    rows = [row.t() for row in RAGGED]
    offsets = torch.tensor([0, 3, 3, 4, 8])
    return torch.nested.nested_tensor_from_jagged(torch.cat(rows, dim=1), offsets=offsets, jagged_dim=2)


def with_gaps() -> Any:
    whole = torch.arange(16.0).view(4, 4)
    return torch.nested.narrow(
        whole, dim=1, start=torch.tensor([0, 1, 0, 2]), length=torch.tensor([1, 3, 0, 2]), layout=torch.jagged
    )


@pytest.mark.parametrize(
    "column",
    [
        torch.nested.nested_tensor(RAGGED, layout=torch.jagged),
        jagged_second(),
        with_gaps(),
        torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(1, 5), torch.ones(4, 4), torch.ones(1, 1)]),
    ],
    ids=["jagged", "ragged dimension last", "with gaps", "strided"],
)
def test_nested_rows(column: Any) -> None:
    wanted = column.unbind()
    batch = TensorDict({"x": column, "n": TensorDict({"inner": column}, [4])}, [4])
    for start, stop in ((0, 4), (0, 2), (1, 4), (2, 2), (3, 4)):
        piece = slice_rows(batch, start, stop)
        assert piece.batch_size == (stop - start,)
        for sliced in (piece["x"], piece["n", "inner"]):
            assert (sliced.layout, sliced.dtype) == (column.layout, column.dtype)
            rows = sliced.unbind()
            assert len(rows) == stop - start
            assert all(torch.equal(row, want) for row, want in zip(rows, wanted[start:stop], strict=True))


def test_other_columns_and_shared_memory() -> None:
    jagged = torch.nested.nested_tensor(RAGGED, layout=torch.jagged)
    batch = TensorDict({"d": torch.arange(8).view(4, 2), "j": jagged, "s": NonTensorStack("a", "b", "b", "c")}, [4])
    piece = slice_rows(batch, 1, 3)
    assert piece["s"] == ["b", "b"]
    assert slice_rows(batch, 3, 4)["s"] == ["c"]
    piece["d"][0] = -1
    piece["j"].values().fill_(-1)
    assert batch["d"].tolist() == [[0, 1], [-1, -1], [4, 5], [6, 7]]
    assert [row.sum().item() for row in batch["j"].unbind()] == [15.0, 0.0, -2.0, 40.0]
    assert jagged.values().data_ptr() <= piece["j"].values().data_ptr()
