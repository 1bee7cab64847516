"""Weights between forms: seeded full state, shard of one tensor parallel rank, one flat row for the data plane."""

from __future__ import annotations

import math

import torch
import torch.distributed as dist

from examples.common.model import ModelConfig, Transformer
from examples.common.tensor_parallel import ColumnParallelLinear, RowParallelLinear, TensorParallel

StateDict = dict[str, torch.Tensor]


def initial_state(config: ModelConfig, seed: int, deviation: float) -> StateDict:
    """The weights of the whole model for a seed: the same on every rank, whatever the parallel layout.

    Normal with that standard deviation; the layers that write to the residual stream are scaled by 1 / sqrt(2 layers),
    as in GPT-2.
    """
    generator = torch.Generator().manual_seed(seed)
    residual_scale = 1.0 / math.sqrt(2 * config.num_layers)
    state = Transformer(config).state_dict()
    for name in sorted(state):
        if name.endswith("norm.weight"):
            state[name] = torch.ones_like(state[name])
            continue
        scale = residual_scale if name.endswith(("attention.out.weight", "mlp.down.weight")) else 1.0
        state[name] = deviation * scale * torch.randn(state[name].shape, generator=generator)
    return state


def sharded_names(config: ModelConfig) -> dict[str, int]:
    """Name of each weight that tensor parallelism splits, and the dimension along which it does."""
    names: dict[str, int] = {}
    for name, module in Transformer(config).named_modules():
        if isinstance(module, (ColumnParallelLinear, RowParallelLinear)):
            names[f"{name}.weight"] = module.shard_dim
    return names


def shard_state(state: StateDict, config: ModelConfig, tp: TensorParallel) -> StateDict:
    """This rank's slice of a whole state; replicated weights are passed on as they are."""
    dims = sharded_names(config)
    return {
        name: weight.chunk(tp.size, dim=dims[name])[tp.rank] if name in dims else weight
        for name, weight in state.items()
    }


def gather_state(model: Transformer, tp: TensorParallel) -> StateDict:
    """The whole state on every rank of the tensor parallel group (a collective of that group)."""
    state = {name: weight.detach() for name, weight in model.state_dict().items()}
    if tp.group is None:
        return state
    dims = sharded_names(model.config)
    for name in sorted(dims):
        mine = state[name].contiguous()
        pieces = [torch.empty_like(mine) for _ in range(tp.size)]
        dist.all_gather(pieces, mine, group=tp.group)
        state[name] = torch.cat(pieces, dim=dims[name])
    return state


def flatten_state(state: StateDict) -> torch.Tensor:
    """All weights in one float32 vector, in the order of their names (one copy)."""
    return torch.cat([state[name].reshape(-1).float() for name in sorted(state)])


def unflatten_state(flat: torch.Tensor, config: ModelConfig) -> StateDict:
    """The inverse of :func:`flatten_state` for the whole model; the tensors are views of ``flat``."""
    shapes = {name: weight.shape for name, weight in Transformer(config).state_dict().items()}
    expected = sum(shape.numel() for shape in shapes.values())
    if flat.numel() != expected:
        raise ValueError(f"got {flat.numel()} weights, the model has {expected}")
    state: StateDict = {}
    offset = 0
    for name in sorted(shapes):
        size = shapes[name].numel()
        state[name] = flat[offset : offset + size].view(shapes[name])
        offset += size
    return state
