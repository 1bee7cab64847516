"""The type of a field as a value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from transferqueue.errors import SchemaMismatchError
from transferqueue.metadata.field_schema import FieldSchema, dtype_name, plain_shape, torch_dtype

TORCH_DTYPES = [value for value in vars(torch).values() if isinstance(value, torch.dtype)]


def test_every_torch_dtype_goes_to_its_name_and_back() -> None:
    assert len(TORCH_DTYPES) > 15
    for dtype in TORCH_DTYPES:
        name = dtype_name(dtype)
        assert name is not None
        assert torch_dtype(name) is dtype


@pytest.mark.parametrize(
    ("given", "name"),
    [("torch.float8_e4m3fn", "float8_e4m3fn"), ("int64", "int64"), (np.dtype("float32"), "float32"), (None, None)],
)
def test_other_spellings(given: Any, name: str | None) -> None:
    assert dtype_name(given) == name


@pytest.mark.parametrize("given", ["__import__", "", "Float32", "a" * 40, 3, "float 32"])
def test_what_is_no_dtype_is_refused(given: Any) -> None:
    with pytest.raises(SchemaMismatchError, match="is not a torch dtype"):
        dtype_name(given)


@pytest.mark.parametrize("name", ["tensor", "int65", "nn"])
def test_a_name_that_torch_does_not_have_is_refused(name: str) -> None:
    with pytest.raises(SchemaMismatchError, match=f"has no dtype '{name}'"):
        torch_dtype(name)


def test_shapes_become_plain_ints() -> None:
    jagged = torch.nested.nested_tensor([torch.zeros(1, 2), torch.zeros(3, 2)], layout=torch.jagged)
    assert plain_shape(jagged.shape[1:]) == (-1, 2)
    assert all(type(size) is int for size in plain_shape(jagged.shape))
    assert plain_shape((np.int64(3), True, -7)) == (3, 1, -1)
    with pytest.raises(TypeError):
        plain_shape(["3"])
    with pytest.raises(SchemaMismatchError, match="larger than any tensor"):
        plain_shape([1 << 63])


def test_of_reads_mappings_and_itself() -> None:
    schema = FieldSchema.of({"dtype": torch.int8, "shape": torch.Size([2]), "is_nested": True})
    assert schema == FieldSchema("int8", (2,), is_nested=True)
    assert FieldSchema.of(schema) is schema
    assert FieldSchema.of(schema.to_plain()) == schema
    assert FieldSchema.of({}) == FieldSchema()
    assert schema.torch_dtype is torch.int8
    assert FieldSchema(is_non_tensor=True).torch_dtype is None
    with pytest.raises(TypeError, match="must be a mapping"):
        FieldSchema.of("int8")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("a", "b", "shape", "nested"),
    [
        ((2, 3), (2, 3), (2, 3), False),
        ((2, 3), (2, 4), (2, -1), True),
        ((-1, 3), (5, 3), (-1, 3), True),
        ((2,), (2, 3), None, True),
        ((), (1,), None, True),
    ],
)
def test_merged_shapes(a: tuple[int, ...], b: tuple[int, ...], shape: tuple[int, ...] | None, nested: bool) -> None:
    for left, right in ((a, b), (b, a)):
        assert FieldSchema("int8", left).merged(FieldSchema("int8", right)) == FieldSchema("int8", shape, nested)


def test_non_tensor_rows_are_never_nested() -> None:
    objects = FieldSchema(is_non_tensor=True)
    assert objects.merged(objects) is objects
    assert not objects.merged(FieldSchema(shape=(2,), is_non_tensor=True)).is_nested
