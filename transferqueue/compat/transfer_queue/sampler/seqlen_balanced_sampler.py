"""See `transferqueue.samplers.seqlen_balanced_sampler`."""

from transferqueue.samplers.karmarkar_karp import get_seqlen_balanced_partitions
from transferqueue.samplers.seqlen_balanced_sampler import SeqlenBalancedSampler

__all__ = ["SeqlenBalancedSampler", "get_seqlen_balanced_partitions"]
