"""See `transferqueue.controller`."""

from transferqueue.controller import (
    MAGIC_ATTR,
    ClassWithInitArgs,
    Dispatch,
    RayClassWithInitArgs,
    RayResourcePool,
    RayWorkerGroup,
    ResourcePool,
    ResourcePoolManager,
    SubRayResourcePool,
    WorkerGroup,
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
    "RayClassWithInitArgs",
    "RayResourcePool",
    "RayWorkerGroup",
    "ResourcePool",
    "ResourcePoolManager",
    "SubRayResourcePool",
    "Worker",
    "WorkerGroup",
    "extract_pg_from_exist",
    "merge_resource_pool",
    "sort_placement_group_by_node_ip",
    "split_resource_pool",
]
