"""The names of the package TransferQueue 0.1.11, on this data plane.

Names are imported when they are first used, like those of `transferqueue`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transferqueue.compat.transfer_queue.client import TransferQueueClient as TransferQueueClient
    from transferqueue.compat.transfer_queue.dataloader import StreamingDataLoader as StreamingDataLoader
    from transferqueue.compat.transfer_queue.dataloader import StreamingDataset as StreamingDataset
    from transferqueue.compat.transfer_queue.errors import StorageKeyNotFoundError as StorageKeyNotFoundError
    from transferqueue.compat.transfer_queue.interface import async_kv_batch_get as async_kv_batch_get
    from transferqueue.compat.transfer_queue.interface import async_kv_batch_get_by_meta as async_kv_batch_get_by_meta
    from transferqueue.compat.transfer_queue.interface import async_kv_batch_put as async_kv_batch_put
    from transferqueue.compat.transfer_queue.interface import async_kv_clear as async_kv_clear
    from transferqueue.compat.transfer_queue.interface import async_kv_list as async_kv_list
    from transferqueue.compat.transfer_queue.interface import async_kv_put as async_kv_put
    from transferqueue.compat.transfer_queue.interface import close as close
    from transferqueue.compat.transfer_queue.interface import get_client as get_client
    from transferqueue.compat.transfer_queue.interface import get_metrics_endpoint as get_metrics_endpoint
    from transferqueue.compat.transfer_queue.interface import init as init
    from transferqueue.compat.transfer_queue.interface import kv_batch_get as kv_batch_get
    from transferqueue.compat.transfer_queue.interface import kv_batch_get_by_meta as kv_batch_get_by_meta
    from transferqueue.compat.transfer_queue.interface import kv_batch_put as kv_batch_put
    from transferqueue.compat.transfer_queue.interface import kv_clear as kv_clear
    from transferqueue.compat.transfer_queue.interface import kv_list as kv_list
    from transferqueue.compat.transfer_queue.interface import kv_put as kv_put
    from transferqueue.compat.transfer_queue.interface import load_checkpoint as load_checkpoint
    from transferqueue.compat.transfer_queue.interface import save_checkpoint as save_checkpoint
    from transferqueue.compat.transfer_queue.metadata import BatchMeta as BatchMeta
    from transferqueue.compat.transfer_queue.metadata import KVBatchMeta as KVBatchMeta
    from transferqueue.compat.transfer_queue.sampler import BaseSampler as BaseSampler
    from transferqueue.compat.transfer_queue.sampler import GRPOGroupNSampler as GRPOGroupNSampler
    from transferqueue.compat.transfer_queue.sampler import RankAwareSampler as RankAwareSampler
    from transferqueue.compat.transfer_queue.sampler import SeqlenBalancedSampler as SeqlenBalancedSampler
    from transferqueue.compat.transfer_queue.sampler import SequentialSampler as SequentialSampler

_PACKAGE = "transferqueue.compat.transfer_queue"

if __name__ != _PACKAGE:
    # The folder around this one is on the path, which is not how `tq dropin` does it: still one copy of each module.
    from transferqueue.dropin import alias_modules

    alias_modules()

_MODULE_OF = {
    name: f"{_PACKAGE}.{module}"
    for module, names in {
        "client": "TransferQueueClient",
        "dataloader": "StreamingDataLoader StreamingDataset",
        "errors": "StorageKeyNotFoundError",
        "interface": (
            "async_kv_batch_get async_kv_batch_get_by_meta async_kv_batch_put async_kv_clear async_kv_list "
            "async_kv_put close get_client get_metrics_endpoint init kv_batch_get kv_batch_get_by_meta kv_batch_put "
            "kv_clear kv_list kv_put load_checkpoint save_checkpoint"
        ),
        "metadata": "BatchMeta KVBatchMeta",
        "sampler": "BaseSampler GRPOGroupNSampler RankAwareSampler SeqlenBalancedSampler SequentialSampler",
    }.items()
    for name in names.split()
}
_SUBMODULES = ("client", "dataloader", "interface", "metadata", "sampler", "utils")

# The version of the surface: programs compare it.
__version__ = "0.1.11"

__all__ = [
    "__version__",
    *_MODULE_OF,
]


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"{_PACKAGE}.{name}")
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
