"""Metadata that several test modules need."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from transferqueue.metadata import BatchMeta, KVBatchMeta

Meta = TypeVar("Meta", BatchMeta, KVBatchMeta)

DENSE = {"dtype": "float32", "shape": (3,)}
JAGGED = {"dtype": "int64", "shape": (-1,), "is_nested": True}
OBJECTS = {"is_non_tensor": True}


def w_schema() -> dict[str, dict[str, Any]]:
    """The seven fields of the benchmark batch W."""
    schema: dict[str, dict[str, Any]] = {
        name: {"dtype": "int64", "shape": (4096,)} for name in ("input_ids", "attention_mask", "position_ids")
    }
    schema["responses"] = {"dtype": "int64", "shape": (2048,)}
    schema["old_log_probs"] = {"dtype": "float32", "shape": (2048,)}
    schema["prompts"] = dict(JAGGED)
    schema["uid"] = dict(OBJECTS)
    return schema


def w_meta(indexes: Any, **changes: Any) -> BatchMeta:
    arguments = {
        "partition_ids": "train_0",
        "field_schema": w_schema(),
        "production_status": np.ones(len(indexes)),
        "session": "tq-default-8f2a91",
    }
    return BatchMeta(indexes, **(arguments | changes))


def meta_of(indexes: Sequence[int], fields: Sequence[str] = ("a", "b"), **changes: Any) -> BatchMeta:
    arguments: dict[str, Any] = {
        "partition_ids": "p",
        "field_schema": dict.fromkeys(fields, DENSE),
        "production_status": np.ones(len(indexes)),
        "session": "s",
    }
    return BatchMeta(indexes, **(arguments | changes))


def kv_of(keys: Sequence[str], **changes: Any) -> KVBatchMeta:
    arguments: dict[str, Any] = {
        "tags": [{"row": position} for position in range(len(keys))],
        "partition_id": "p",
        "fields": ["a", "b"],
        "session": "s",
    }
    return KVBatchMeta(list(keys), **(arguments | changes))


def pickled(meta: object) -> bytes:
    return pickle.dumps(meta, protocol=pickle.HIGHEST_PROTOCOL)


def shipped(meta: Meta) -> Meta:
    back: Meta = pickle.loads(pickled(meta))
    return back
