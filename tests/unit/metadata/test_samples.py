"""Rows one by one, read-only."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.unit.metadata.builders import DENSE, JAGGED, OBJECTS, meta_of


def test_a_sample_shows_its_row() -> None:
    schema = {"j": {**JAGGED, "per_sample_shapes": [(2,), (5,)]}, "a": DENSE, "o": OBJECTS}
    meta = meta_of(
        [7, 9], partition_ids=["p", "q"], field_schema=schema, production_status=[1, 0], custom_meta=[{}, {"k": 1}]
    )
    assert len(meta.samples) == 2
    sample = meta.samples[1]
    assert sample.global_index == 9
    assert sample.partition_id == "q"
    assert sample.production_status == 0
    assert sample.custom_meta == {"k": 1}
    assert set(sample.fields) == {"j", "a", "o"}
    assert dict(sample.fields["j"]) == {"dtype": torch.int64, "shape": (5,), "is_nested": True, "is_non_tensor": False}
    assert sample.fields["a"]["shape"] == (3,)
    assert sample.fields["o"]["shape"] is None
    assert "global_index=9" in repr(sample)
    meta.reorder([1, 0])
    assert sample.global_index == 7
    assert sample.fields["j"]["shape"] == (2,)


def test_samples_are_a_sequence() -> None:
    samples = meta_of([7, 9, 11]).samples
    assert [sample.global_index for sample in samples] == [7, 9, 11]
    assert samples[-1].global_index == 11
    assert [sample.global_index for sample in samples[1:]] == [9, 11]
    for outside in (3, -4):
        with pytest.raises(IndexError, match="out of range for 3 rows"):
            samples[outside]


def test_the_mappings_are_read_only() -> None:
    sample: Any = meta_of([1]).samples[0]
    for mapping in (sample.custom_meta, sample.fields, sample.fields["a"]):
        with pytest.raises(TypeError):
            mapping["x"] = 1
    with pytest.raises(AttributeError):
        sample.global_index = 3
