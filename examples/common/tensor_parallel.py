"""Tensor parallel layers over a process group: column and row parallel linear, as in Megatron-LM.

Source: Shoeybi et al., "Megatron-LM", section 3 (arXiv 1909.08053). A column parallel layer holds a slice of the
outputs, a row parallel layer the matching slice of the inputs. Around such a pair stand two conjugate functions:
one is the identity forward and an all-reduce backward, the other an all-reduce forward and the identity backward.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F


@dataclass(frozen=True)
class TensorParallel:
    """This rank's place in its tensor parallel group; the default is one rank without a process group."""

    rank: int = 0
    size: int = 1
    group: dist.ProcessGroup | None = None

    def share_of(self, count: int, what: str) -> int:
        """``count / size``; ValueError when the group does not divide it."""
        if count % self.size:
            raise ValueError(f"{what}={count} cannot be split over {self.size} tensor parallel ranks")
        return count // self.size


def _all_reduce(x: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    total = x.contiguous().clone()
    dist.all_reduce(total, group=group)
    return total


class _CopyToGroup(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[torch.Tensor, None]:
        return _all_reduce(grads[0], ctx.group), None


class _ReduceFromGroup(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        return _all_reduce(x, group)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[torch.Tensor, None]:
        return grads[0], None


def copy_to_group(x: torch.Tensor, tp: TensorParallel) -> torch.Tensor:
    """Identity forward; sums the gradient over the group backward, because each rank saw a part of the use of x."""
    if tp.group is None:
        return x
    result: torch.Tensor = _CopyToGroup.apply(x, tp.group)  # type: ignore[no-untyped-call]
    return result


def reduce_from_group(x: torch.Tensor, tp: TensorParallel) -> torch.Tensor:
    """Sum over the group forward; identity backward."""
    if tp.group is None:
        return x
    result: torch.Tensor = _ReduceFromGroup.apply(x, tp.group)  # type: ignore[no-untyped-call]
    return result


class ColumnParallelLinear(nn.Module):
    """``parts`` stacked projections, each split by output: ``[..., in] -> [..., parts, out / tp]``.

    The parts (query, key and value) are a dimension of their own, so that a slice of the weight along dimension 1
    takes the same heads from each.
    """

    shard_dim = 1

    def __init__(self, in_features: int, out_features: int, tp: TensorParallel, parts: int = 1) -> None:
        super().__init__()
        self.tp = tp
        self.parts = parts
        self.out_local = tp.share_of(out_features, "out_features")
        self.weight = nn.Parameter(torch.empty(parts, self.out_local, in_features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.linear(copy_to_group(x, self.tp), self.weight.flatten(0, 1))
        return y.view(*y.shape[:-1], self.parts, self.out_local)


class RowParallelLinear(nn.Module):
    """Split by input: ``[..., in / tp] -> [..., out]``, summed over the group."""

    shard_dim = 1

    def __init__(self, in_features: int, out_features: int, tp: TensorParallel) -> None:
        super().__init__()
        self.tp = tp
        self.weight = nn.Parameter(torch.empty(out_features, tp.share_of(in_features, "in_features")))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return reduce_from_group(F.linear(x, self.weight), self.tp)
