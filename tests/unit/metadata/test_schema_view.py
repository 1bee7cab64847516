"""field_schema behaves like a dict of dicts that cannot be changed."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

from tests.unit.metadata.builders import DENSE, JAGGED, meta_of
from transferqueue.metadata import BatchMeta, FieldSchema

A = {"dtype": torch.float32, "shape": (3,), "is_nested": False, "is_non_tensor": False}
J = {"dtype": torch.int64, "shape": (-1,), "is_nested": True, "is_non_tensor": False, "per_sample_shapes": [(2,), (5,)]}


def meta() -> BatchMeta:
    return meta_of([1, 2], field_schema={"j": {**JAGGED, "per_sample_shapes": [(2,), (5,)]}, "a": DENSE})


def test_it_reads_like_a_dict_of_dicts() -> None:
    schema = meta().field_schema
    assert schema == {"j": J, "a": A}
    assert list(schema) == ["j", "a"]
    assert len(schema) == 2
    assert "a" in schema
    assert "zz" not in schema
    assert schema.get("zz") is None
    assert schema["a"] == A
    assert len(schema["a"]) == 4
    assert len(schema["j"]) == 5
    assert schema["a"].get("per_sample_shapes") is None
    assert repr(schema["a"]) == repr(A)
    with pytest.raises(KeyError):
        schema["a"]["colour"]
    for copied in (copy.deepcopy(schema), pickle.loads(pickle.dumps(schema))):
        assert type(copied) is dict
        assert copied == {"j": J, "a": A}
    assert pickle.loads(pickle.dumps(schema["j"])) == copy.deepcopy(schema["j"]) == J


def test_it_cannot_be_changed_but_follows_the_batch() -> None:
    batch = meta()
    schema = batch.field_schema
    with pytest.raises(TypeError):
        schema["new"] = {}  # type: ignore[index]
    with pytest.raises(TypeError):
        schema["a"]["shape"] = ()  # type: ignore[index]
    batch.add_schema({"b": FieldSchema("int8", (1,))})
    assert "b" in schema
    batch.field_schema = {"c": DENSE}
    assert list(schema) == ["c"]
