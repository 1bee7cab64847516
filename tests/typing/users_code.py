"""What a user's typed program says; checked by mypy strict and pyright, never run."""

from __future__ import annotations

import torch
from tensordict import TensorDict

import transferqueue as tq
from transferqueue.errors import FieldNotReadyError, StorageFullError


def produce(session_name: str) -> tq.BatchMeta:
    with tq.init(session=session_name, **{"storage.size": "64MiB"}) as session:
        client = tq.get_client()
        meta: tq.BatchMeta = client.put(TensorDict({"x": torch.zeros(4, 2)}, batch_size=[4]), partition_id="train")
        kv: tq.KVBatchMeta = tq.kv_batch_put(keys=["a"], partition_id="train", tags=[{"score": 1.0}])
        size: int = meta.size + kv.size
        name: str = session.name
        print(size, name)
        return meta


def consume(meta: tq.BatchMeta) -> torch.Tensor:
    client = tq.get_client()
    try:
        batch: TensorDict = client.get_data(meta, fields=["x"], timeout=1.0)
    except (FieldNotReadyError, StorageFullError, TimeoutError):
        raise
    stats: tq.Stats = client.stats()
    print(stats.used_bytes)
    value = batch.get("x")
    if not isinstance(value, torch.Tensor):
        raise TypeError("x is a tensor")
    return value


async def consume_async(meta: tq.BatchMeta) -> TensorDict:
    client = tq.get_client()
    batch: TensorDict = await client.async_get_data(meta)
    keyed: TensorDict = await tq.async_kv_batch_get(keys=["a"], partition_id="train")
    print(keyed.batch_size)
    return batch
