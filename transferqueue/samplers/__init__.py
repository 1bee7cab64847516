"""Who decides which ready rows a consumer gets."""

from transferqueue.samplers.base import BaseSampler
from transferqueue.samplers.grpo_group_n_sampler import GRPOGroupNSampler
from transferqueue.samplers.sequential_sampler import SequentialSampler

__all__ = ["BaseSampler", "GRPOGroupNSampler", "SequentialSampler"]
