"""Metadata from before a field was added: the error says so."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from tests.unit.workers.fake_client import SESSION, FakeClient
from transferqueue.errors import FieldNotReadyError
from transferqueue.metadata import BatchMeta, KVBatchMeta
from transferqueue.workers import tqbridge


@tqbridge()
def read_y(batch: TensorDict) -> TensorDict:
    return TensorDict({"z": batch["y"]}, batch.batch_size)


@tqbridge()
async def read_y_async(batch: TensorDict) -> TensorDict:
    return TensorDict({"z": batch["y"]}, batch.batch_size)


@tqbridge()
def look_up(batch: TensorDict, table: dict[str, int]) -> None:
    table["y"]


@pytest.fixture
def rows(client: FakeClient) -> BatchMeta:
    """Metadata of rows that have got a field since."""
    meta = client.put(TensorDict({"x": torch.arange(2)}, [2]), None, "train")
    client.put(TensorDict({"y": torch.arange(2)}, [2]), meta.copy())
    return meta


def check(call: Any) -> None:
    with pytest.raises(KeyError, match=r"read_y.*The rows have the field 'y', but .* names only 'x'") as caught:
        call()
    assert isinstance(caught.value, FieldNotReadyError)
    assert caught.value.fields == ("y",)
    assert type(caught.value.__cause__) is KeyError


def test_old_metadata_is_named_as_the_reason(rows: BatchMeta) -> None:
    check(lambda: read_y(rows))
    check(lambda: read_y(batch=rows))
    check(lambda: asyncio.run(read_y_async(rows)))


def test_metadata_by_keys_too(client: FakeClient) -> None:
    client.put_keys(["a"], TensorDict({"x": torch.arange(1), "y": torch.arange(1)}, [1]), "train")
    check(lambda: read_y(KVBatchMeta(["a"], [{}], "train", ["x"], session=SESSION)))


def test_a_key_error_of_the_methods_own_stays_one(client: FakeClient, rows: BatchMeta) -> None:
    new = client.put(TensorDict({"w": torch.arange(2)}, [2]), None, "train")
    with pytest.raises(KeyError) as caught:
        read_y(new)  # no row has it
    assert type(caught.value) is KeyError
    with pytest.raises(KeyError) as caught:
        look_up(client.put(TensorDict({"y": torch.arange(2)}, [2]), rows.copy()), {})  # the metadata names it
    assert type(caught.value) is KeyError
