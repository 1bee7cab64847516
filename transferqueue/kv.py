"""The key calls on this process's client: ``tq.kv_put`` is ``tq.get_client().kv_put``, and so on."""

from __future__ import annotations

from transferqueue.calls import on_client
from transferqueue.client import TransferQueueClient

kv_put = on_client(TransferQueueClient.kv_put)
kv_batch_put = on_client(TransferQueueClient.kv_batch_put)
kv_batch_get = on_client(TransferQueueClient.kv_batch_get)
kv_batch_get_by_meta = on_client(TransferQueueClient.kv_batch_get_by_meta)
kv_list = on_client(TransferQueueClient.kv_list)
kv_clear = on_client(TransferQueueClient.kv_clear)

async_kv_put = on_client(TransferQueueClient.async_kv_put)
async_kv_batch_put = on_client(TransferQueueClient.async_kv_batch_put)
async_kv_batch_get = on_client(TransferQueueClient.async_kv_batch_get)
async_kv_batch_get_by_meta = on_client(TransferQueueClient.async_kv_batch_get_by_meta)
async_kv_list = on_client(TransferQueueClient.async_kv_list)
async_kv_clear = on_client(TransferQueueClient.async_kv_clear)
