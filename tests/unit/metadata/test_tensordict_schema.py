"""What add_fields reads off a TensorDict, for every kind of column."""

from __future__ import annotations

import pytest
import torch
from tensordict import LazyStackedTensorDict, NonTensorData, NonTensorStack, TensorDict, lazy_stack

from transferqueue.errors import SchemaMismatchError
from transferqueue.metadata import FieldSchema
from transferqueue.metadata.tensordict_schema import schema_of_tensordict

ROWS = [torch.zeros(n, 4, dtype=torch.bfloat16) for n in (2, 0, 3)]


def test_dense_columns() -> None:
    batch = TensorDict(
        {
            "scalar": torch.zeros(3, dtype=torch.bool),
            "wide": torch.zeros(3, 2, 0, dtype=torch.complex64),
            "grad": torch.zeros(3, 1, requires_grad=True),
        },
        [3],
    )
    schemas, shapes = schema_of_tensordict(batch)
    assert schemas == {
        "scalar": FieldSchema("bool", ()),
        "wide": FieldSchema("complex64", (2, 0)),
        "grad": FieldSchema("float32", (1,)),
    }
    assert shapes == {}
    assert schema_of_tensordict(TensorDict({"x": torch.zeros(0, 3)}, [0]))[0] == {"x": FieldSchema("float32", (3,))}


def test_jagged_columns() -> None:
    first = torch.nested.as_nested_tensor(ROWS, layout=torch.jagged)
    second = first.transpose(1, 2)
    schemas, shapes = schema_of_tensordict(TensorDict({"first": first, "second": second}, [3]))
    assert schemas["first"] == FieldSchema("bfloat16", (-1, 4), is_nested=True)
    assert schemas["second"] == FieldSchema("bfloat16", (4, -1), is_nested=True)
    assert shapes["first"].tolist() == [(2, 4), (0, 4), (3, 4)]
    assert shapes["second"].tolist() == [(4, 2), (4, 0), (4, 3)]


def test_jagged_columns_with_holes() -> None:
    narrowed = torch.nested.narrow(
        torch.arange(12).reshape(3, 4), 1, torch.tensor([0, 1, 2]), torch.tensor([1, 3, 2]), layout=torch.jagged
    )
    schemas, shapes = schema_of_tensordict(TensorDict({"n": narrowed}, [3]))
    assert schemas["n"] == FieldSchema("int64", (-1,), is_nested=True)
    assert shapes["n"].tolist() == [(1,), (3,), (2,)]


def test_a_single_or_equally_long_jagged_row_stays_jagged() -> None:
    for rows in (ROWS[:1], [ROWS[0], ROWS[0]]):
        batch = TensorDict({"j": torch.nested.as_nested_tensor(rows, layout=torch.jagged)}, [len(rows)])
        assert schema_of_tensordict(batch)[0]["j"] == FieldSchema("bfloat16", (-1, 4), is_nested=True)


def test_strided_nested_columns() -> None:
    rows = [torch.zeros(2, 3), torch.zeros(2, 5)]
    schemas, shapes = schema_of_tensordict(TensorDict({"s": torch.nested.nested_tensor(rows)}, [2]))
    assert schemas["s"] == FieldSchema("float32", (2, -1), is_nested=True)
    assert shapes["s"].tolist() == [(2, 3), (2, 5)]


def test_stacks_of_differently_shaped_rows() -> None:
    stack = lazy_stack([TensorDict({"x": row, "y": torch.zeros(2)}, []) for row in ROWS], 0)
    assert isinstance(stack, LazyStackedTensorDict)
    schemas, shapes = schema_of_tensordict(stack)
    assert schemas == {"x": FieldSchema("bfloat16", (-1, 4), is_nested=True), "y": FieldSchema("float32", (2,))}
    assert shapes["x"].tolist() == [(2, 4), (0, 4), (3, 4)]


def test_non_tensor_columns() -> None:
    batch = TensorDict({"s": NonTensorStack("a", "b"), "c": NonTensorData("same", batch_size=[2])}, [2])
    schemas, shapes = schema_of_tensordict(batch)
    assert schemas == {"s": FieldSchema(is_non_tensor=True), "c": FieldSchema(is_non_tensor=True)}
    assert shapes == {}


def test_a_tensordict_inside_is_refused_by_name() -> None:
    inner = TensorDict({"x": TensorDict({"y": torch.zeros(2)}, [2])}, [2])
    with pytest.raises(SchemaMismatchError, match="field 'x' is itself a TensorDict") as error:
        schema_of_tensordict(inner)
    assert error.value.fields == ("x",)
