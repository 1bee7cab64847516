"""Batches of a trainer's own type go into the store as they are, and come back."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
import torch

import transferqueue as tq
from transferqueue.errors import SchemaMismatchError
from transferqueue.workers import DataProto


def proto(rows: int) -> DataProto:
    return DataProto.from_dict(
        {"x": torch.arange(rows), "wide": torch.ones(rows, 2, dtype=torch.bfloat16)},
        {"uid": [f"u{i}" for i in range(rows)], "turns": np.array([[i] * i for i in range(rows)], dtype=object)},
        {"temperature": 0.5, "names": ["a", "b"], "config": {"k": [1]}},
    )


def test_a_proto_goes_in_and_comes_back(client: Any) -> None:
    data = proto(3)
    meta = client.put(data, partition_id="p")
    assert meta.extra_info == data.meta_info
    data.batch["x"].fill_(9)
    back = client.get_as(DataProto, meta)
    assert (back.batch["x"].tolist(), back.batch["wide"].dtype) == ([0, 1, 2], torch.bfloat16)
    assert back.non_tensor_batch["uid"].tolist() == ["u0", "u1", "u2"]
    assert back.non_tensor_batch["turns"].tolist() == [[], [1], [2, 2]]
    assert back.meta_info == data.meta_info
    more = client.put(DataProto.from_dict({"y": torch.ones(3)}, meta_info={"epoch": 1}), metadata=meta)
    assert client.get_as(DataProto, more, fields=["y"]).meta_info == {**data.meta_info, "epoch": 1}
    assert asyncio.run(client.async_get_as(DataProto, meta[::2])).batch["x"].tolist() == [0, 2]
    assert len(client.get_as(DataProto, meta[:0])) == 0


def test_by_keys(client: Any) -> None:
    meta = client.kv_batch_put(["a", "b"], "kv", proto(2), tags=[{"n": 0}, {"n": 1}])
    assert meta.extra_info["temperature"] == 0.5
    assert client.kv_put("c", "kv", proto(1)).keys == ["c"]
    back = client.get_as(DataProto, meta[1:], fields=["x", "uid"])
    assert (back.batch["x"].tolist(), back.non_tensor_batch["uid"].tolist()) == ([1], ["u1"])
    assert back.meta_info == meta.extra_info


def test_what_does_not_fit_is_refused(client: Any) -> None:
    meta = client.put(proto(2), partition_id="p")
    with pytest.raises(TypeError, match=r"dict.*from_tensordict"):
        client.get_as(dict, meta)
    with pytest.raises(TypeError, match="put takes a TensorDict or DataProto, not list"):
        client.put([1], partition_id="p")
    meta.extra_info = {"x": 1}
    with pytest.raises(SchemaMismatchError, match="'x' has the name of a field"):
        client.get_as(DataProto, meta)
    with pytest.raises(AssertionError, match="meta_info"):
        client.put(DataProto.from_dict({"x": torch.zeros(1)}, meta_info={"x": 1}), partition_id="p")


def test_the_module_has_it_too() -> None:
    assert callable(tq.get_as)
    assert asyncio.iscoroutinefunction(tq.async_get_as)
