"""See `transferqueue.controller` and `transferqueue.workers`."""

from transferqueue.controller import ClassWithInitArgs, ResourcePool, WorkerGroup
from transferqueue.workers import Worker

__all__ = ["ClassWithInitArgs", "ResourcePool", "Worker", "WorkerGroup"]
