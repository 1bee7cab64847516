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
        ack as ack,
    )
    from transferqueue.calls import (
        alloc as alloc,
    )
    from transferqueue.calls import (
        async_ack as async_ack,
    )
    from transferqueue.calls import (
        async_alloc as async_alloc,
    )
    from transferqueue.calls import (
        async_check_consumption_status as async_check_consumption_status,
    )
    from transferqueue.calls import (
        async_check_production_status as async_check_production_status,
    )
    from transferqueue.calls import (
        async_claim as async_claim,
    )
    from transferqueue.calls import (
        async_clear_partition as async_clear_partition,
    )
    from transferqueue.calls import (
        async_clear_samples as async_clear_samples,
    )
    from transferqueue.calls import (
        async_coalesce as async_coalesce,
    )
    from transferqueue.calls import (
        async_extend as async_extend,
    )
    from transferqueue.calls import (
        async_get_as as async_get_as,
    )
    from transferqueue.calls import (
        async_get_consumption_status as async_get_consumption_status,
    )
    from transferqueue.calls import (
        async_get_data as async_get_data,
    )
    from transferqueue.calls import (
        async_get_limits as async_get_limits,
    )
    from transferqueue.calls import (
        async_get_meta as async_get_meta,
    )
    from transferqueue.calls import (
        async_get_partition_list as async_get_partition_list,
    )
    from transferqueue.calls import (
        async_get_production_status as async_get_production_status,
    )
    from transferqueue.calls import (
        async_kv_retrieve_keys as async_kv_retrieve_keys,
    )
    from transferqueue.calls import (
        async_kv_retrieve_meta as async_kv_retrieve_meta,
    )
    from transferqueue.calls import (
        async_load_checkpoint as async_load_checkpoint,
    )
    from transferqueue.calls import (
        async_nack as async_nack,
    )
    from transferqueue.calls import (
        async_place_partition as async_place_partition,
    )
    from transferqueue.calls import (
        async_prefetch as async_prefetch,
    )
    from transferqueue.calls import (
        async_put as async_put,
    )
    from transferqueue.calls import (
        async_reset_consumption as async_reset_consumption,
    )
    from transferqueue.calls import (
        async_row_nodes as async_row_nodes,
    )
    from transferqueue.calls import (
        async_save_checkpoint as async_save_checkpoint,
    )
    from transferqueue.calls import (
        async_set_custom_meta as async_set_custom_meta,
    )
    from transferqueue.calls import (
        async_set_limits as async_set_limits,
    )
    from transferqueue.calls import (
        async_set_weight_version as async_set_weight_version,
    )
    from transferqueue.calls import (
        async_stats as async_stats,
    )
    from transferqueue.calls import (
        async_trim as async_trim,
    )
    from transferqueue.calls import (
        async_wait as async_wait,
    )
    from transferqueue.calls import (
        check_consumption_status as check_consumption_status,
    )
    from transferqueue.calls import (
        check_production_status as check_production_status,
    )
    from transferqueue.calls import (
        claim as claim,
    )
    from transferqueue.calls import (
        clear_partition as clear_partition,
    )
    from transferqueue.calls import (
        clear_samples as clear_samples,
    )
    from transferqueue.calls import (
        coalesce as coalesce,
    )
    from transferqueue.calls import (
        extend as extend,
    )
    from transferqueue.calls import (
        get_as as get_as,
    )
    from transferqueue.calls import (
        get_consumption_status as get_consumption_status,
    )
    from transferqueue.calls import (
        get_data as get_data,
    )
    from transferqueue.calls import (
        get_limits as get_limits,
    )
    from transferqueue.calls import (
        get_meta as get_meta,
    )
    from transferqueue.calls import (
        get_partition_list as get_partition_list,
    )
    from transferqueue.calls import (
        get_production_status as get_production_status,
    )
    from transferqueue.calls import (
        kv_retrieve_keys as kv_retrieve_keys,
    )
    from transferqueue.calls import (
        kv_retrieve_meta as kv_retrieve_meta,
    )
    from transferqueue.calls import (
        load_checkpoint as load_checkpoint,
    )
    from transferqueue.calls import (
        nack as nack,
    )
    from transferqueue.calls import (
        place_partition as place_partition,
    )
    from transferqueue.calls import (
        prefetch as prefetch,
    )
    from transferqueue.calls import (
        put as put,
    )
    from transferqueue.calls import (
        reset_consumption as reset_consumption,
    )
    from transferqueue.calls import (
        row_nodes as row_nodes,
    )
    from transferqueue.calls import (
        save_checkpoint as save_checkpoint,
    )
    from transferqueue.calls import (
        set_custom_meta as set_custom_meta,
    )
    from transferqueue.calls import (
        set_limits as set_limits,
    )
    from transferqueue.calls import (
        set_weight_version as set_weight_version,
    )
    from transferqueue.calls import (
        stats as stats,
    )
    from transferqueue.calls import (
        trim as trim,
    )
    from transferqueue.calls import (
        wait as wait,
    )
    from transferqueue.claims import (
        Claim as Claim,
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
    )
    from transferqueue.conversions import (
        async_kv_batch_meta2batch_meta as async_kv_batch_meta2batch_meta,
    )
    from transferqueue.conversions import (
        batch_meta2kv_batch_meta as batch_meta2kv_batch_meta,
    )
    from transferqueue.conversions import (
        kv_batch_meta2batch_meta as kv_batch_meta2batch_meta,
    )
    from transferqueue.endpoints import (
        get_metrics_endpoint as get_metrics_endpoint,
    )
    from transferqueue.errors import (
        ClosedError as ClosedError,
    )
    from transferqueue.errors import (
        CorruptCheckpointError as CorruptCheckpointError,
    )
    from transferqueue.errors import (
        CorruptSegmentError as CorruptSegmentError,
    )
    from transferqueue.errors import (
        DataLostError as DataLostError,
    )
    from transferqueue.errors import (
        FieldNotReadyError as FieldNotReadyError,
    )
    from transferqueue.errors import (
        KeyNotFoundError as KeyNotFoundError,
    )
    from transferqueue.errors import (
        LayoutMismatchError as LayoutMismatchError,
    )
    from transferqueue.errors import (
        LimitExceededError as LimitExceededError,
    )
    from transferqueue.errors import (
        LimitTimeoutError as LimitTimeoutError,
    )
    from transferqueue.errors import (
        MemoryRefusedError as MemoryRefusedError,
    )
    from transferqueue.errors import (
        NodeAccessError as NodeAccessError,
    )
    from transferqueue.errors import (
        NodeUnreachableError as NodeUnreachableError,
    )
    from transferqueue.errors import (
        PartitionNotFoundError as PartitionNotFoundError,
    )
    from transferqueue.errors import (
        PickleNotAllowedError as PickleNotAllowedError,
    )
    from transferqueue.errors import (
        RowDecodeError as RowDecodeError,
    )
    from transferqueue.errors import (
        SchemaMismatchError as SchemaMismatchError,
    )
    from transferqueue.errors import (
        SessionNotFoundError as SessionNotFoundError,
    )
    from transferqueue.errors import (
        StaleMetadataError as StaleMetadataError,
    )
    from transferqueue.errors import (
        StorageFullError as StorageFullError,
    )
    from transferqueue.errors import (
        SystemRefusedError as SystemRefusedError,
    )
    from transferqueue.errors import (
        TransferQueueError as TransferQueueError,
    )
    from transferqueue.errors import (
        TransferTimeoutError as TransferTimeoutError,
    )
    from transferqueue.errors import (
        UntrustedFileError as UntrustedFileError,
    )
    from transferqueue.kv import (
        async_kv_batch_get as async_kv_batch_get,
    )
    from transferqueue.kv import (
        async_kv_batch_get_by_meta as async_kv_batch_get_by_meta,
    )
    from transferqueue.kv import (
        async_kv_batch_put as async_kv_batch_put,
    )
    from transferqueue.kv import (
        async_kv_clear as async_kv_clear,
    )
    from transferqueue.kv import (
        async_kv_list as async_kv_list,
    )
    from transferqueue.kv import (
        async_kv_put as async_kv_put,
    )
    from transferqueue.kv import (
        kv_batch_get as kv_batch_get,
    )
    from transferqueue.kv import (
        kv_batch_get_by_meta as kv_batch_get_by_meta,
    )
    from transferqueue.kv import (
        kv_batch_put as kv_batch_put,
    )
    from transferqueue.kv import (
        kv_clear as kv_clear,
    )
    from transferqueue.kv import (
        kv_list as kv_list,
    )
    from transferqueue.kv import (
        kv_put as kv_put,
    )
    from transferqueue.metadata import (
        BatchMeta as BatchMeta,
    )
    from transferqueue.metadata import (
        KVBatchMeta as KVBatchMeta,
    )
    from transferqueue.partition_limits import (
        PartitionLimits as PartitionLimits,
    )
    from transferqueue.read_report import (
        ReadReport as ReadReport,
    )
    from transferqueue.samplers import (
        BaseSampler as BaseSampler,
    )
    from transferqueue.samplers import (
        GRPOGroupNSampler as GRPOGroupNSampler,
    )
    from transferqueue.samplers import (
        RankAwareSampler as RankAwareSampler,
    )
    from transferqueue.samplers import (
        SeqlenBalancedSampler as SeqlenBalancedSampler,
    )
    from transferqueue.samplers import (
        SequentialSampler as SequentialSampler,
    )
    from transferqueue.session import (
        Session as Session,
    )
    from transferqueue.session import (
        attach as attach,
    )
    from transferqueue.session import (
        close as close,
    )
    from transferqueue.session import (
        get_client as get_client,
    )
    from transferqueue.session import (
        init as init,
    )
    from transferqueue.session_stats import (
        Stats as Stats,
    )
    from transferqueue.streaming import (
        StreamingDataLoader as StreamingDataLoader,
    )
    from transferqueue.streaming import (
        StreamingDataset as StreamingDataset,
    )

_MODULE_OF = {
    name: module
    for module, names in {
        "transferqueue.allocation": "Allocation",
        "transferqueue.session_stats": "Stats",
        "transferqueue.calls": (
            "ack alloc async_ack async_alloc async_check_consumption_status async_check_production_status "
            "async_claim async_clear_partition async_clear_samples async_coalesce async_extend async_get_as "
            "async_get_consumption_status async_get_data async_get_limits async_get_meta async_get_partition_list "
            "async_get_production_status async_kv_retrieve_keys async_kv_retrieve_meta async_load_checkpoint "
            "async_nack async_place_partition async_prefetch async_put async_reset_consumption async_row_nodes "
            "async_save_checkpoint async_set_custom_meta async_set_limits async_set_weight_version async_stats "
            "async_trim async_wait check_consumption_status check_production_status claim clear_partition "
            "clear_samples coalesce extend get_as get_consumption_status get_data get_limits get_meta "
            "get_partition_list get_production_status kv_retrieve_keys kv_retrieve_meta load_checkpoint nack "
            "place_partition prefetch put reset_consumption row_nodes save_checkpoint set_custom_meta set_limits "
            "set_weight_version stats trim wait"
        ),
        "transferqueue.claims": "Claim",
        "transferqueue.client": "TransferQueueClient",
        "transferqueue.codec": "Jagged",
        "transferqueue.config": "Config",
        "transferqueue.conversions": (
            "async_batch_meta2kv_batch_meta async_kv_batch_meta2batch_meta batch_meta2kv_batch_meta "
            "kv_batch_meta2batch_meta"
        ),
        "transferqueue.endpoints": "get_metrics_endpoint",
        "transferqueue.errors": (
            "ClosedError CorruptCheckpointError CorruptSegmentError DataLostError FieldNotReadyError KeyNotFoundError "
            "LayoutMismatchError LimitExceededError LimitTimeoutError MemoryRefusedError NodeAccessError "
            "NodeUnreachableError PartitionNotFoundError PickleNotAllowedError RowDecodeError SchemaMismatchError "
            "SessionNotFoundError StaleMetadataError StorageFullError SystemRefusedError TransferQueueError "
            "TransferTimeoutError UntrustedFileError"
        ),
        "transferqueue.kv": (
            "async_kv_batch_get async_kv_batch_get_by_meta async_kv_batch_put async_kv_clear async_kv_list "
            "async_kv_put kv_batch_get kv_batch_get_by_meta kv_batch_put kv_clear kv_list kv_put"
        ),
        "transferqueue.metadata": "BatchMeta KVBatchMeta",
        "transferqueue.partition_limits": "PartitionLimits",
        "transferqueue.read_report": "ReadReport",
        "transferqueue.samplers": (
            "BaseSampler GRPOGroupNSampler RankAwareSampler SeqlenBalancedSampler SequentialSampler"
        ),
        "transferqueue.session": "Session attach close get_client init",
        "transferqueue.streaming": "StreamingDataLoader StreamingDataset",
    }.items()
    for name in names.split()
}

LAZY_MODULES = sorted(set(_MODULE_OF.values()))

try:
    __version__ = _distributions.version("transferqueue-shm")
except _distributions.PackageNotFoundError:  # a source tree on the path
    __version__ = "0+unknown"

__all__ = [
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
