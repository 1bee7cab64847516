"""Worker groups: ranks on Ray that are called as one object. Ray is imported on first use, not here."""

from transferqueue.controller.class_with_init_args import ClassWithInitArgs
from transferqueue.controller.colocated import (
    ColocatedWorker,
    FusedWorker,
    RoleNotFoundError,
    create_colocated_worker_cls,
    create_colocated_worker_cls_fused,
    create_colocated_worker_raw_cls,
)
from transferqueue.controller.dispatch import (
    DISPATCH_MODE_FN_REGISTRY,
    MAGIC_ATTR,
    Broadcast,
    DataProtoConfig,
    Dispatch,
    DispatchError,
    DispatchMode,
    DispatchRefusedError,
    Execute,
    OutputMismatchError,
    PerRank,
    UnknownModeError,
    get_predefined_dispatch_fn,
    get_predefined_execute_fn,
    make_nd_compute_dataproto_dispatch_fn,
    register,
    register_dispatch_mode,
    update_dispatch_mode,
)
from transferqueue.controller.errors import (
    DetachedWorkersNotFoundError,
    InsufficientResourcesError,
    PoolNotFoundError,
    PoolShapeError,
    PoolSharedOutError,
    WorkerDiedError,
    WorkerError,
    WorkerGroupDeadError,
    WorkerStartError,
)
from transferqueue.controller.group_future import GroupFuture
from transferqueue.controller.local_worker_group import LocalWorkerGroup
from transferqueue.controller.pools.orphans import remove_orphaned_pools
from transferqueue.controller.pools.ray_resource_pool import RayResourcePool
from transferqueue.controller.pools.resource_pool import ResourcePool
from transferqueue.controller.pools.resource_pool_manager import ResourcePoolManager
from transferqueue.controller.pools.role import Role
from transferqueue.controller.pools.splitting import merge_resource_pool, split_resource_pool
from transferqueue.controller.pools.sub_ray_resource_pool import SubRayResourcePool
from transferqueue.controller.ray_class import RayClassWithInitArgs
from transferqueue.controller.ray_worker_group import RayWorkerGroup
from transferqueue.controller.worker_group import WorkerGroup

__all__ = [
    "DISPATCH_MODE_FN_REGISTRY",
    "MAGIC_ATTR",
    "Broadcast",
    "ClassWithInitArgs",
    "ColocatedWorker",
    "DataProtoConfig",
    "DetachedWorkersNotFoundError",
    "Dispatch",
    "DispatchError",
    "DispatchMode",
    "DispatchRefusedError",
    "Execute",
    "FusedWorker",
    "GroupFuture",
    "InsufficientResourcesError",
    "LocalWorkerGroup",
    "OutputMismatchError",
    "PerRank",
    "PoolNotFoundError",
    "PoolShapeError",
    "PoolSharedOutError",
    "RayClassWithInitArgs",
    "RayResourcePool",
    "RayWorkerGroup",
    "ResourcePool",
    "ResourcePoolManager",
    "Role",
    "RoleNotFoundError",
    "SubRayResourcePool",
    "UnknownModeError",
    "WorkerDiedError",
    "WorkerError",
    "WorkerGroup",
    "WorkerGroupDeadError",
    "WorkerStartError",
    "create_colocated_worker_cls",
    "create_colocated_worker_cls_fused",
    "create_colocated_worker_raw_cls",
    "get_predefined_dispatch_fn",
    "get_predefined_execute_fn",
    "make_nd_compute_dataproto_dispatch_fn",
    "merge_resource_pool",
    "register",
    "register_dispatch_mode",
    "remove_orphaned_pools",
    "split_resource_pool",
    "update_dispatch_mode",
]
