"""Who decides which ready rows a consumer gets."""

from transferqueue.samplers.base import BaseSampler
from transferqueue.samplers.grpo_group_n_sampler import GRPOGroupNSampler
from transferqueue.samplers.karmarkar_karp import get_seqlen_balanced_partitions
from transferqueue.samplers.rank_aware_sampler import RankAwareSampler
from transferqueue.samplers.seqlen_balanced_sampler import SeqlenBalancedSampler
from transferqueue.samplers.sequential_sampler import SequentialSampler

__all__ = [
    "BaseSampler",
    "GRPOGroupNSampler",
    "RankAwareSampler",
    "SeqlenBalancedSampler",
    "SequentialSampler",
    "get_seqlen_balanced_partitions",
]
