"""See `transferqueue.controller`."""

from transferqueue.controller import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup

__all__ = ["RayClassWithInitArgs", "RayResourcePool", "RayWorkerGroup"]
