"""See `transferqueue.samplers.sequential_sampler`."""

from transferqueue.samplers.sequential_sampler import SequentialSampler

__all__ = ["SequentialSampler"]
