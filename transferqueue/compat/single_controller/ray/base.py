"""See `transferqueue.controller`."""

from transferqueue.controller import (
    MAGIC_ATTR,
    ClassWithInitArgs,
    Dispatch,
    FusedWorker,
    RayClassWithInitArgs,
    RayResourcePool,
    RayWorkerGroup,
    ResourcePool,
    ResourcePoolManager,
    SubRayResourcePool,
    WorkerGroup,
    create_colocated_worker_cls,
    create_colocated_worker_cls_fused,
    create_colocated_worker_raw_cls,
    merge_resource_pool,
    split_resource_pool,
)
from transferqueue.controller.pools.existing import extract_pg_from_exist, sort_placement_group_by_node_ip
from transferqueue.workers import DataProto, Worker

__all__ = [
    "MAGIC_ATTR",
    "ClassWithInitArgs",
    "DataProto",
    "Dispatch",
    "FusedWorker",
    "RayClassWithInitArgs",
    "RayResourcePool",
    "RayWorkerGroup",
    "ResourcePool",
    "ResourcePoolManager",
    "SubRayResourcePool",
    "Worker",
    "WorkerGroup",
    "create_colocated_worker_cls",
    "create_colocated_worker_cls_fused",
    "create_colocated_worker_raw_cls",
    "extract_pg_from_exist",
    "merge_resource_pool",
    "sort_placement_group_by_node_ip",
    "split_resource_pool",
]
