"""The fields of a BatchMeta: adding, selecting, types and row shapes."""

from __future__ import annotations

import json

import msgspec
import pytest
import torch
from tensordict import TensorDict

from tests.unit.metadata.builders import meta_of, shipped
from transferqueue.metadata import BatchMeta, FieldSchema


class Shown(BatchMeta):
    """Shows a 1-D column as the compatible face does."""

    scalar_row_shape = (1,)


def test_add_fields_keeps_those_of_earlier_puts() -> None:
    """Field case 11, the metadata's part: a second put with the returned metadata lists both fields."""
    meta = BatchMeta([7, 8], "p")
    returned = meta.add_fields(TensorDict({"a": torch.zeros(2, 3)}, [2]))
    assert returned is meta
    assert meta.is_ready
    assert shipped(meta).add_fields(TensorDict({"b": torch.zeros(2, dtype=torch.int32)}, [2])).field_names == ["a", "b"]
    before = meta.copy()
    meta.add_fields(TensorDict({"b": torch.zeros(2)}, [2]), set_all_ready=False)
    assert before.field_names == ["a"]
    assert meta.field_names == ["a", "b"]


def test_add_fields_checks_the_rows_and_ignores_nothing_new() -> None:
    meta = BatchMeta([7, 8], "p")
    with pytest.raises(ValueError, match="3 rows does not match metadata of 2"):
        meta.add_fields(TensorDict({"a": torch.zeros(3)}, [3]))
    with pytest.raises(ValueError, match="no batch dimension"):
        meta.add_fields(TensorDict({"a": torch.zeros(3)}, []))
    meta.add_fields(TensorDict({"a": torch.zeros(0)}, [0]))
    meta.add_fields(TensorDict({}, [2]))
    assert meta.field_names == []
    assert not meta.is_ready
    meta.add_fields(TensorDict({"a": torch.zeros(2)}, [2]), set_all_ready=False)
    assert not meta.is_ready


def test_a_scalar_per_row_has_no_shape() -> None:
    """Field case 17, and the hook with which the compatible face shows it otherwise."""
    column = TensorDict({"r": torch.rand(4), "m": torch.rand(4, 1)}, [4])
    meta = BatchMeta(range(4), "p").add_fields(column)
    assert meta.field_schema["r"]["shape"] == ()
    assert meta.get_shapes("r") == [()] * 4
    assert meta.samples[0].fields["r"]["shape"] == ()
    assert meta.field_schema["m"]["shape"] == (1,)
    shown = shipped(Shown(range(4), "p").add_fields(column))
    assert type(shown) is Shown
    assert type(Shown.concat([shown[1], shown.chunk(2)[0]])) is Shown
    assert shown.field_schema["r"]["shape"] == (1,)
    assert shown.get_shapes("r") == [(1,)] * 4


def test_a_schema_is_plain_ints() -> None:
    """Field case 27: no symbolic size survives, and json and msgpack take the schema."""
    jagged = torch.nested.nested_tensor([torch.zeros(n, 2) for n in (1, 3)], layout=torch.jagged)
    meta = BatchMeta([0, 1], "p").add_fields(TensorDict({"j": jagged, "d": torch.zeros(2, 5)}, [2]))
    for one in (meta, shipped(meta), meta.union(meta), BatchMeta.concat([meta[0], meta[1]])):
        plain = {name: schema.to_plain() for name, schema in one.schemas.items()}
        assert plain["j"]["shape"] == [-1, 2]
        assert all(type(size) is int for schema in plain.values() for size in schema["shape"])
        assert json.loads(json.dumps(plain)) == msgspec.msgpack.decode(msgspec.msgpack.encode(plain)) == plain
        assert {name: FieldSchema.of(schema) for name, schema in plain.items()} == one.schemas
        assert one.get_shapes("j") == [(1, 2), (3, 2)]


def test_unknown_fields_are_key_errors_that_say_what_is_there() -> None:
    meta = meta_of([1])
    for ask in (meta.get_dtypes, meta.get_shapes, meta.field_schema.__getitem__, meta.schema_of):
        with pytest.raises(KeyError, match="'zz' is not in this metadata, which has 'a', 'b'"):
            ask("zz")
    assert meta.get_dtypes("a") == [torch.float32]
    assert meta.get_shapes("a") == [(3,)]


def test_select_fields() -> None:
    meta = meta_of([1, 2], "abc", _custom_backend_meta=[{"a": 1, "b": 2, "_all": 3}, {}], extra_info={"k": [1]})
    picked = meta.select_fields(["c", "zz", "a"])
    assert list(picked.field_schema) == ["c", "a"]
    assert picked._custom_backend_meta == [{"a": 1, "_all": 3}, {}]
    assert picked.global_indexes == [1, 2]
    assert picked.is_ready
    assert picked.session == "s"
    assert meta.select_fields("a").field_names == ["a"]
    picked.extra_info["k"].append(2)
    assert meta.extra_info == {"k": [1]}
