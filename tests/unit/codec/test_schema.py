"""Schema bytes: stable, checked, and readable as metadata."""

from __future__ import annotations

import msgspec
import pytest
import torch

from transferqueue import _native
from transferqueue.codec import check_name, plan_put, schema_dict
from transferqueue.codec import schema as forms
from transferqueue.codec.schema import VERSION, read_schema, schema_bytes
from transferqueue.errors import CorruptSegmentError, LayoutMismatchError, SchemaMismatchError
from transferqueue.metadata.field_schema import FieldSchema


def schema_of(value: object, n: int = 2) -> bytes:
    return plan_put({"x": value}, n).layouts[0].schema


def test_equal_for_rows_of_one_type_whatever_their_lengths() -> None:
    def jagged(*lengths: int) -> torch.Tensor:
        return torch.nested.nested_tensor([torch.ones(n, 3) for n in lengths], layout=torch.jagged)

    assert schema_of(jagged(1, 2)) == schema_of(jagged(50, 7))
    assert schema_of(["a", "b"]) == schema_of([None, {"k": [1.5]}])
    assert schema_of(torch.ones(2, 3)) != schema_of(torch.ones(2, 4))


def test_read_back() -> None:
    raw = schema_bytes(forms.JAGGED, "bfloat16", (-1, 3), path=("a", "b"), inner_batch=((), (2,)))
    schema = read_schema(raw)
    assert (schema.form, schema.dtype, schema.shape, schema.path, schema.inner_batch) == (
        forms.JAGGED,
        "bfloat16",
        (-1, 3),
        ("a", "b"),
        ((), (2,)),
    )
    assert schema.ragged_dim == 0


def test_another_version_says_so() -> None:
    raw = msgspec.msgpack.encode([VERSION + 1, {"quite": "different"}])
    with pytest.raises(LayoutMismatchError, match=f"version {VERSION + 1}") as caught:
        read_schema(raw)
    assert (caught.value.expected, caught.value.found) == (VERSION, VERSION + 1)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xc1",
        b"\x00",
        msgspec.msgpack.encode({}),
        msgspec.msgpack.encode([VERSION]),
        msgspec.msgpack.encode([VERSION, "no such form"]),
        msgspec.msgpack.encode([VERSION, forms.DENSE, "float32", [-5]]),
        msgspec.msgpack.encode([VERSION, forms.DENSE, "float32", [-1]]),
        msgspec.msgpack.encode([VERSION, forms.DENSE, None, [1]]),
        msgspec.msgpack.encode([VERSION, forms.DENSE, 7, [1]]),
    ],
)
def test_unreadable_bytes_are_a_typed_error(raw: bytes) -> None:
    with pytest.raises(CorruptSegmentError):
        read_schema(raw)


def test_metadata_reads_every_kind() -> None:
    strided = torch.nested.nested_tensor([torch.ones(1, 2), torch.ones(3, 4)])
    plan = plan_put(
        {"d": torch.ones(2, 3).bool(), "s": strided, "u": ["a", "b"], "t": [torch.ones(1), torch.ones(2, 2)]}
    )
    fields = {layout.name: FieldSchema.of(schema_dict(layout.schema)) for layout in plan.layouts}
    assert fields["d"] == FieldSchema("bool", (3,))
    assert fields["s"] == FieldSchema("float32", (-1, -1), is_nested=True)
    assert fields["u"] == FieldSchema(is_non_tensor=True)
    assert fields["t"] == FieldSchema("float32", None, is_nested=True)
    assert all(isinstance(layout, _native.FieldLayout) for layout in plan.layouts)


@pytest.mark.parametrize("name", ["", "a\0b", "\0", 3, None, b"x"])
def test_names_that_are_none(name: object) -> None:
    with pytest.raises(SchemaMismatchError):
        check_name(name)
    with pytest.raises(ValueError):
        plan_put({name: torch.ones(2)})


@pytest.mark.parametrize("name", ["a", "actor/entropy", "ü \n", "a.b", "x" * 10_000, " "])
def test_any_other_name_is_kept(name: str) -> None:
    assert check_name(name) == name
    assert plan_put({name: torch.ones(2)}).layouts[0].name == name
