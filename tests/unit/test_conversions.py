"""Between rows by key and rows by global index."""

from __future__ import annotations

import asyncio

import pytest
import torch
from tensordict import TensorDict

from tests.unit.workers.fake_client import SESSION, FakeClient
from transferqueue import conversions
from transferqueue.conversions import (
    async_batch_meta2kv_batch_meta,
    async_kv_batch_meta2batch_meta,
    batch_meta2kv_batch_meta,
    kv_batch_meta2batch_meta,
)
from transferqueue.errors import FieldNotReadyError, KeyNotFoundError, PartitionNotFoundError, StaleMetadataError
from transferqueue.metadata import BatchMeta, KVBatchMeta


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    fake = FakeClient()
    attached: list[str] = []
    monkeypatch.setattr(conversions, "attach", attached.append)
    monkeypatch.setattr(conversions, "get_client", lambda: fake)
    fake.put_keys([f"k{i}" for i in range(4)], TensorDict({"x": torch.arange(4), "z": torch.arange(4)}, [4]), "train")
    return fake


def by_key(fields: list[str] | None = None) -> KVBatchMeta:
    meta = KVBatchMeta(
        [f"k{i}" for i in range(4)], [{"n": i} for i in range(4)], "train", fields, {"step": 1}, session=SESSION
    )
    meta.reorder([2, 0, 3, 1])
    return meta


def test_there_and_back_is_the_same(client: FakeClient) -> None:
    meta = by_key(["x"])
    rows = kv_batch_meta2batch_meta(meta)
    assert rows.global_indexes == [2, 0, 3, 1]
    assert rows.custom_meta == [{"n": 2}, {"n": 0}, {"n": 3}, {"n": 1}]
    assert (rows.field_names, rows.extra_info, rows.session, rows.is_ready) == (["x"], {"step": 1}, SESSION, True)
    assert batch_meta2kv_batch_meta(rows) == meta

    async def both() -> KVBatchMeta:
        return await async_batch_meta2kv_batch_meta(await async_kv_batch_meta2batch_meta(meta))

    assert asyncio.run(both()) == meta


def test_keys_survive_reordering_and_splitting_of_the_rows(client: FakeClient) -> None:
    rows = kv_batch_meta2batch_meta(by_key())
    rows.reorder([3, 2, 1, 0])
    keys = [key for piece in rows.chunk(3) for key in batch_meta2kv_batch_meta(piece).keys]
    assert keys == ["k1", "k3", "k0", "k2"]


def test_nothing_mutable_is_shared(client: FakeClient) -> None:
    meta = by_key()
    rows = kv_batch_meta2batch_meta(meta)
    rows.custom_meta[0]["n"] = 99
    rows.extra_info["step"] = 99
    assert (meta.tags[0], meta.extra_info) == ({"n": 2}, {"step": 1})
    again = batch_meta2kv_batch_meta(rows)
    again.tags[0]["n"] = 7
    assert rows.custom_meta[0] == {"n": 99}


def test_all_fields_when_none_are_named(client: FakeClient) -> None:
    assert kv_batch_meta2batch_meta(by_key()).field_names == ["x", "z"]


def test_pads_stay_pads(client: FakeClient) -> None:
    padded = by_key(["x"]).pad_to_divisor(3)
    rows = kv_batch_meta2batch_meta(padded)
    assert rows.global_indexes == [2, 0, 3, 1, 1, 1]
    assert rows.padding_mask.tolist() == [False] * 4 + [True] * 2
    assert batch_meta2kv_batch_meta(rows) == padded
    only_pads = padded.chunk(3)[2]
    assert kv_batch_meta2batch_meta(only_pads).num_padding == 2
    assert batch_meta2kv_batch_meta(kv_batch_meta2batch_meta(only_pads)) == only_pads


def test_empty_batches(client: FakeClient) -> None:
    rows = kv_batch_meta2batch_meta(by_key(["x"])[:0])
    assert (rows.size, rows.field_names, rows.extra_info) == (0, ["x"], {"step": 1})
    assert kv_batch_meta2batch_meta(KVBatchMeta()).size == 0
    assert batch_meta2kv_batch_meta(BatchMeta.empty({"a": 1})).extra_info == {"a": 1}


def test_what_is_not_there_is_named(client: FakeClient) -> None:
    meta = by_key(["x", "rewards"])
    with pytest.raises(FieldNotReadyError, match="'rewards'") as caught:
        kv_batch_meta2batch_meta(meta)
    assert caught.value.fields == ("rewards",)
    with pytest.raises(KeyNotFoundError, match="gone"):
        kv_batch_meta2batch_meta(KVBatchMeta(["gone"], [{}], "train", session=SESSION))
    with pytest.raises(PartitionNotFoundError, match="names no partition"):
        kv_batch_meta2batch_meta(KVBatchMeta(["k0"], [{}]))
    unkeyed = client.put(TensorDict({"x": torch.arange(2)}, [2]), None, "train")
    with pytest.raises(StaleMetadataError, match="2 rows of partition 'train' have no key") as stale:
        batch_meta2kv_batch_meta(unkeyed)
    assert stale.value.rows == tuple(unkeyed.global_indexes)
    with pytest.raises(ValueError, match="one partition, these rows are in 'a', 'b'"):
        batch_meta2kv_batch_meta(BatchMeta([0, 1], ["a", "b"]))
