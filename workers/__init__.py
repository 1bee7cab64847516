"""What runs in a rank of a worker group. Imports no Ray."""

import transferqueue.workers.batch_kinds  # noqa: F401  # registers the kinds of batches that come with the package
from transferqueue.workers.arguments import Broadcast, PerRank
from transferqueue.workers.bridge import tqbridge
from transferqueue.workers.data_proto import (
    DataProto,
    DataProtoError,
    DataProtoFuture,
    DataProtoItem,
    DataProtoKeyError,
    pad_dataproto_to_divisor,
    unpad_dataproto,
)
from transferqueue.workers.device_mesh import make_mesh, mesh_dp_info
from transferqueue.workers.dispatch_mode import DispatchMode
from transferqueue.workers.dispatch_modes import (
    DISPATCH_MODE_FN_REGISTRY,
    Dispatch,
    get_predefined_dispatch_fn,
    make_nd_compute_dataproto_dispatch_fn,
    register_dispatch_mode,
    update_dispatch_mode,
)
from transferqueue.workers.errors import (
    BackendNotAvailableError,
    DeviceVisibilityError,
    DispatchError,
    DispatchRefusedError,
    MeshNotRegisteredError,
    MeshRegisteredError,
    NoFreePortError,
    OutputMismatchError,
    UnknownModeError,
)
from transferqueue.workers.execute import Execute, get_predefined_execute_fn
from transferqueue.workers.futures import Future
from transferqueue.workers.node_helper import WorkerHelper
from transferqueue.workers.outputs import alloc_outputs, async_alloc_outputs
from transferqueue.workers.padding_config import DataProtoConfig
from transferqueue.workers.padding_mask import padding_mask
from transferqueue.workers.process_group import (
    destroy_process_group,
    init_process_group,
    initialize_global_process_group_ray,
)
from transferqueue.workers.rank_nodes import RankNode, RankNodes
from transferqueue.workers.ranks import DistGlobalInfo, DistRankInfo, RankInfo
from transferqueue.workers.register import MAGIC_ATTR, register
from transferqueue.workers.row_batch import RowBatchKind, register_row_batch
from transferqueue.workers.stateless_group import StatelessProcessGroup, stateless_init_process_group
from transferqueue.workers.worker import Worker
from transferqueue.workers.write_back import (
    CollectMaskWrites,
    EveryRankWrites,
    MegatronWrites,
    OneRankWrites,
    WriteBack,
)

__all__ = [
    "DISPATCH_MODE_FN_REGISTRY",
    "MAGIC_ATTR",
    "BackendNotAvailableError",
    "Broadcast",
    "CollectMaskWrites",
    "DataProto",
    "DataProtoConfig",
    "DataProtoError",
    "DataProtoFuture",
    "DataProtoItem",
    "DataProtoKeyError",
    "DeviceVisibilityError",
    "Dispatch",
    "DispatchError",
    "DispatchMode",
    "DispatchRefusedError",
    "DistGlobalInfo",
    "DistRankInfo",
    "EveryRankWrites",
    "Execute",
    "Future",
    "MegatronWrites",
    "MeshNotRegisteredError",
    "MeshRegisteredError",
    "NoFreePortError",
    "OneRankWrites",
    "OutputMismatchError",
    "PerRank",
    "RankInfo",
    "RankNode",
    "RankNodes",
    "RowBatchKind",
    "StatelessProcessGroup",
    "UnknownModeError",
    "Worker",
    "WorkerHelper",
    "WriteBack",
    "alloc_outputs",
    "async_alloc_outputs",
    "destroy_process_group",
    "get_predefined_dispatch_fn",
    "get_predefined_execute_fn",
    "init_process_group",
    "initialize_global_process_group_ray",
    "make_mesh",
    "make_nd_compute_dataproto_dispatch_fn",
    "mesh_dp_info",
    "pad_dataproto_to_divisor",
    "padding_mask",
    "register",
    "register_dispatch_mode",
    "register_row_batch",
    "stateless_init_process_group",
    "tqbridge",
    "unpad_dataproto",
    "update_dispatch_mode",
]
