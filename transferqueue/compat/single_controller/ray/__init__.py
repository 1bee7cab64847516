"""See `transferqueue.controller`."""

from transferqueue.controller import (
    RayClassWithInitArgs,
    RayResourcePool,
    RayWorkerGroup,
    ResourcePoolManager,
    SubRayResourcePool,
)

__all__ = ["RayClassWithInitArgs", "RayResourcePool", "RayWorkerGroup", "ResourcePoolManager", "SubRayResourcePool"]
