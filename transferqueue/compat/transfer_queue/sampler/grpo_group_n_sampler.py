"""See `transferqueue.samplers.grpo_group_n_sampler`."""

from transferqueue.samplers.grpo_group_n_sampler import GRPOGroupNSampler

__all__ = ["GRPOGroupNSampler"]
