"""Gradients over the mesh: averaged over the data parallel group, clipped by the norm of the whole model."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist

from examples.common.model import Transformer
from examples.common.tensor_parallel import TensorParallel
from examples.common.weights import sharded_names


def sum_over(values: torch.Tensor, group: dist.ProcessGroup | None) -> torch.Tensor:
    """The sum of a small tensor over a group; the tensor itself without one."""
    if group is not None:
        dist.all_reduce(values, group=group)
    return values


def sum_gradients(parameters: Iterable[torch.nn.Parameter], group: dist.ProcessGroup | None) -> None:
    """Sums the gradients over the data parallel group in one collective.

    The losses are sums over this rank's rows divided by the tokens of *all* ranks, so the sum is the gradient that one
    process would have computed for the whole mini-batch.
    """
    if group is None:
        return
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
    dist.all_reduce(flat, group=group)
    for gradient, total in zip(gradients, torch.split(flat, [g.numel() for g in gradients]), strict=True):
        gradient.copy_(total.view_as(gradient))


def clip_gradients(model: Transformer, tp: TensorParallel, max_norm: float) -> float:
    """Scales the gradients to at most `max_norm`; returns the norm before, the same on every rank.

    The norm is that of the whole model: sharded weights are counted on each rank, replicated ones once.
    """
    sharded = sharded_names(model.config)
    squares = torch.zeros(2)
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            squares[int(name in sharded)] += parameter.grad.square().sum()
    total = squares[0] + sum_over(squares[1:].clone(), tp.group)[0]
    norm = float(total.sqrt())
    if norm > max_norm:
        scale = max_norm / (norm + 1e-6)
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad.mul_(scale)
    return norm
