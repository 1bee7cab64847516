"""See `transferqueue.samplers.base`."""

from transferqueue.samplers.base import BaseSampler

__all__ = ["BaseSampler"]
