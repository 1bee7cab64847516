"""Schemas of fields, as the index and checkpoints hold them, and what the native core is told of them."""

from __future__ import annotations

import torch

from tests.fuzz.edits import Input, edited, edits_of
from tests.fuzz.targets import Target
from transferqueue.codec import schema as forms
from transferqueue.codec.plain_columns import describe
from transferqueue.errors import CorruptSegmentError, LayoutMismatchError

SCHEMAS = [
    forms.schema_bytes(forms.DENSE, "float32", (4, 2)),
    forms.schema_bytes(forms.JAGGED, "int64", (3, -1, 2)),
    forms.schema_bytes(forms.STRIDED, "bool", (-1, 8), path=("a", "b"), inner_batch=((),)),
    forms.schema_bytes(forms.DENSE, "bfloat16", (4, 2), path=("a", "b"), inner_batch=((4,),)),
    forms.schema_bytes(forms.NUMPY, "'<U8'", (2,)),
    forms.schema_bytes(forms.OBJECTS, pickled=True),
    forms.schema_bytes(forms.STACK, headers=True),
    forms.schema_bytes(forms.VALUES),
]


def run(data: bytes) -> None:
    given = Input(data)
    raw = SCHEMAS[given.number() % len(SCHEMAS)]
    while not given.empty:
        raw = edited(raw, given)
    try:
        schema = forms.read_schema(raw)
        plain = forms.schema_dict(raw)
        described = describe(raw)
    except (CorruptSegmentError, LayoutMismatchError):
        return
    assert schema.version == forms.VERSION
    assert plain["is_non_tensor"] in (True, False)
    if described is not None:
        assert isinstance(described[6].dtype, torch.dtype)


def target() -> Target:
    seeds = [bytes([number]) + tail for number in range(len(SCHEMAS)) for tail in edits_of(30, seed=number)]
    return Target("schema", run, seeds)
