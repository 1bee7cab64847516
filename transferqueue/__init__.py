"""TransferQueue over shared memory: a data plane for training loops under one controller.

The controller ships metadata; the bytes stay in shared memory, and a worker sees them as a TensorDict without a copy.

Names are imported when they are first used: ``import transferqueue`` loads neither torch nor Ray, so that tools and the
janitor stay small.
"""

from __future__ import annotations

import importlib
from importlib import metadata as _distributions
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transferqueue.allocation import (
        Allocation as Allocation,
    )
    from transferqueue.calls import (
        alloc as alloc,
        async_alloc as async_alloc,
        async_check_consumption_status as async_check_consumption_status,
        async_check_production_status as async_check_production_status,
        async_clear_partition as async_clear_partition,
        async_clear_samples as async_clear_samples,
        async_coalesce as async_coalesce,
        async_get_consumption_status as async_get_consumption_status,
        async_get_data as async_get_data,
        async_get_meta as async_get_meta,
        async_get_partition_list as async_get_partition_list,
        async_get_production_status as async_get_production_status,
        async_kv_retrieve_keys as async_kv_retrieve_keys,
        async_kv_retrieve_meta as async_kv_retrieve_meta,
        async_put as async_put,
        async_reset_consumption as async_reset_consumption,
        async_set_custom_meta as async_set_custom_meta,
        async_stats as async_stats,
        async_trim as async_trim,
        async_wait as async_wait,
        check_consumption_status as check_consumption_status,
        check_production_status as check_production_status,
        clear_partition as clear_partition,
        clear_samples as clear_samples,
        coalesce as coalesce,
        get_consumption_status as get_consumption_status,
        get_data as get_data,
        get_meta as get_meta,
        get_partition_list as get_partition_list,
        get_production_status as get_production_status,
        kv_retrieve_keys as kv_retrieve_keys,
        kv_retrieve_meta as kv_retrieve_meta,
        put as put,
        reset_consumption as reset_consumption,
        set_custom_meta as set_custom_meta,
        stats as stats,
        trim as trim,
        wait as wait,
    )
    from transferqueue.client import (
        TransferQueueClient as TransferQueueClient,
    )
    from transferqueue.codec import (
        Jagged as Jagged,
    )
    from transferqueue.config import (
        Config as Config,
    )
    from transferqueue.conversions import (
        async_batch_meta2kv_batch_meta as async_batch_meta2kv_batch_meta,
        async_kv_batch_meta2batch_meta as async_kv_batch_meta2batch_meta,
        batch_meta2kv_batch_meta as batch_meta2kv_batch_meta,
        kv_batch_meta2batch_meta as kv_batch_meta2batch_meta,
    )
    from transferqueue.errors import (
        ClosedError as ClosedError,
        CorruptSegmentError as CorruptSegmentError,
        DataLostError as DataLostError,
        FieldNotReadyError as FieldNotReadyError,
        KeyNotFoundError as KeyNotFoundError,
        LayoutMismatchError as LayoutMismatchError,
        PartitionNotFoundError as PartitionNotFoundError,
        SchemaMismatchError as SchemaMismatchError,
        SessionNotFoundError as SessionNotFoundError,
        StaleMetadataError as StaleMetadataError,
        StorageFullError as StorageFullError,
        TransferQueueError as TransferQueueError,
        TransferTimeoutError as TransferTimeoutError,
    )
    from transferqueue.kv import (
        async_kv_batch_get as async_kv_batch_get,
        async_kv_batch_get_by_meta as async_kv_batch_get_by_meta,
        async_kv_batch_put as async_kv_batch_put,
        async_kv_clear as async_kv_clear,
        async_kv_list as async_kv_list,
        async_kv_put as async_kv_put,
        kv_batch_get as kv_batch_get,
        kv_batch_get_by_meta as kv_batch_get_by_meta,
        kv_batch_put as kv_batch_put,
        kv_clear as kv_clear,
        kv_list as kv_list,
        kv_put as kv_put,
    )
    from transferqueue.metadata import (
        BatchMeta as BatchMeta,
        KVBatchMeta as KVBatchMeta,
    )
    from transferqueue.read_report import (
        ReadReport as ReadReport,
    )
    from transferqueue.samplers import (
        BaseSampler as BaseSampler,
        GRPOGroupNSampler as GRPOGroupNSampler,
        SequentialSampler as SequentialSampler,
    )
    from transferqueue.session import (
        Session as Session,
        attach as attach,
        close as close,
        get_client as get_client,
        init as init,
    )

_MODULE_OF = {
    name: module
    for module, names in {
        "transferqueue.allocation": "Allocation",
        "transferqueue.calls": (
            "alloc async_alloc async_check_consumption_status async_check_production_status "
            "async_clear_partition async_clear_samples async_coalesce async_get_consumption_status "
            "async_get_data async_get_meta async_get_partition_list async_get_production_status "
            "async_kv_retrieve_keys async_kv_retrieve_meta async_put async_reset_consumption "
            "async_set_custom_meta async_stats async_trim async_wait check_consumption_status "
            "check_production_status clear_partition clear_samples coalesce get_consumption_status get_data "
            "get_meta get_partition_list get_production_status kv_retrieve_keys kv_retrieve_meta put "
            "reset_consumption set_custom_meta stats trim wait"
        ),
        "transferqueue.client": "TransferQueueClient",
        "transferqueue.codec": "Jagged",
        "transferqueue.config": "Config",
        "transferqueue.conversions": (
            "async_batch_meta2kv_batch_meta async_kv_batch_meta2batch_meta batch_meta2kv_batch_meta "
            "kv_batch_meta2batch_meta"
        ),
        "transferqueue.errors": (
            "ClosedError CorruptSegmentError DataLostError FieldNotReadyError KeyNotFoundError "
            "LayoutMismatchError PartitionNotFoundError SchemaMismatchError SessionNotFoundError "
            "StaleMetadataError StorageFullError TransferQueueError TransferTimeoutError"
        ),
        "transferqueue.kv": (
            "async_kv_batch_get async_kv_batch_get_by_meta async_kv_batch_put async_kv_clear async_kv_list "
            "async_kv_put kv_batch_get kv_batch_get_by_meta kv_batch_put kv_clear kv_list kv_put"
        ),
        "transferqueue.metadata": "BatchMeta KVBatchMeta",
        "transferqueue.read_report": "ReadReport",
        "transferqueue.samplers": "BaseSampler GRPOGroupNSampler SequentialSampler",
        "transferqueue.session": "Session attach close get_client init",
    }.items()
    for name in names.split()
}

try:
    __version__ = _distributions.version("transferqueue-shm")
except _distributions.PackageNotFoundError:  # a source tree on the path
    __version__ = "0+unknown"

__all__ = [  # noqa: PLE0604
    "__version__",
    *_MODULE_OF,
]


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
