"""See `transferqueue.controller`."""

from transferqueue.controller import (
    ClassWithInitArgs,
    Dispatch,
    RayClassWithInitArgs,
    RayResourcePool,
    RayWorkerGroup,
    ResourcePool,
    WorkerGroup,
)
from transferqueue.workers import Worker
from transferqueue.workers.register import MAGIC_ATTR

__all__ = [
    "MAGIC_ATTR",
    "ClassWithInitArgs",
    "Dispatch",
    "RayClassWithInitArgs",
    "RayResourcePool",
    "RayWorkerGroup",
    "ResourcePool",
    "Worker",
    "WorkerGroup",
]
