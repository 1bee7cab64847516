"""The names of verl's `single_controller` package under its paths, for programs that were written for it.

Import lists only: every name is the native object. Nothing of this package imports them.
"""

from transferqueue.controller import ClassWithInitArgs, ResourcePool, WorkerGroup
from transferqueue.workers import Worker

__all__ = ["ClassWithInitArgs", "ResourcePool", "Worker", "WorkerGroup"]
