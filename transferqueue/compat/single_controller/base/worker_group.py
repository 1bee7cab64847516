"""See `transferqueue.controller`."""

from transferqueue.controller import ClassWithInitArgs, ResourcePool, WorkerGroup
from transferqueue.workers import Dispatch, get_predefined_dispatch_fn, get_predefined_execute_fn
from transferqueue.workers.register import MAGIC_ATTR

__all__ = [
    "MAGIC_ATTR",
    "ClassWithInitArgs",
    "Dispatch",
    "ResourcePool",
    "WorkerGroup",
    "get_predefined_dispatch_fn",
    "get_predefined_execute_fn",
]
