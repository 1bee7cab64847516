"""Metadata of the compatible face as an argument of bridged methods: taken like native metadata, and given back."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensordict import TensorDict

import transferqueue as native
from transferqueue.compat import transfer_queue as tq
from transferqueue.workers import tqbridge
from transferqueue.workers.row_batch import join_outputs, kind_of

pytestmark = pytest.mark.usefixtures("client")


@tqbridge()
def double(batch: TensorDict) -> TensorDict:
    return TensorDict({"y": batch["x"] * 2}, batch.batch_size)


def put() -> tq.KVBatchMeta:
    return tq.kv_batch_put(["a", "b"], "p", TensorDict({"x": torch.ones(2, 3)}, [2]), [{"n": 0}, {"n": 1}])


def test_by_key() -> None:
    meta = put()
    meta.extra_info["step"] = 1
    back: Any = double(meta)  # type: ignore[arg-type]
    assert type(back) is tq.KVBatchMeta
    assert (back.keys, back.tags, back.fields) == (["a", "b"], [{"n": 0}, {"n": 1}], ["x", "y"])
    assert tq.kv_batch_get_by_meta(back)["y"].is_nested


def test_by_index() -> None:
    put()
    meta = tq.get_client().get_meta(["x"], 2, "p", task_name="t")
    back: Any = double(meta)  # type: ignore[arg-type]
    assert type(back) is tq.BatchMeta
    assert back.field_names == ["x", "y"]
    assert meta.field_names == ["x"]
    read = tq.get_client().get_data(back)
    assert [row.tolist() for row in read["y"].unbind()] == [[2.0] * 3] * 2
    # The native converters take it, too.
    assert native.batch_meta2kv_batch_meta(back).keys == ["a", "b"]
    assert native.kv_batch_meta2batch_meta(put()).global_indexes == back.global_indexes


def test_ranks_without_rows_run_on_an_empty_batch() -> None:
    put()
    meta = tq.get_client().get_meta(["x"], 2, "p", task_name="t")
    pieces: list[Any] = [double(piece) for piece in meta.chunk(3)]  # type: ignore[arg-type]
    assert {type(piece) for piece in pieces} == {tq.BatchMeta}
    joined = join_outputs(pieces)
    assert type(joined) is tq.BatchMeta
    assert joined.global_indexes == meta.global_indexes
    assert joined.field_names == ["x", "y"]
    assert kind_of(put()) is not None
