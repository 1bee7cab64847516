"""See `transferqueue.samplers.rank_aware_sampler`."""

from transferqueue.samplers.rank_aware_sampler import RankAwareSampler

__all__ = ["RankAwareSampler"]
