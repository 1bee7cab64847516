"""A decoder-only transformer of one to three million parameters, written for this example.

Pre-norm, learned positions, no biases, tied nowhere. With a :class:`TensorParallel` of more than one rank the
attention heads and the hidden units of the MLP are split; embeddings, norms and the output layer are replicated.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from examples.common.tensor_parallel import ColumnParallelLinear, RowParallelLinear, TensorParallel


@dataclass(frozen=True)
class ModelConfig:
    """Sizes of the model; ``max_position`` bounds prompt plus response in tokens."""

    vocab_size: int
    max_position: int
    hidden_size: int
    num_layers: int
    num_heads: int


class KVCache:
    """Keys and values of one generation: per layer ``[batch, heads, max_length, head_dim]``, filled from the left."""

    def __init__(self, model: Transformer, batch_size: int, max_length: int) -> None:
        attention = model.blocks[0].attention
        shape = (batch_size, attention.heads_local, max_length, attention.head_dim)
        dtype = model.token_embedding.weight.dtype
        self.keys = [torch.zeros(shape, dtype=dtype) for _ in model.blocks]
        self.values = [torch.zeros(shape, dtype=dtype) for _ in model.blocks]
        self.length = 0

    def append(self, layer: int, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Stores k and v ``[batch, heads, new, head_dim]`` after what is there; returns views of all up to now."""
        end = self.length + k.shape[2]
        self.keys[layer][:, :, self.length : end] = k
        self.values[layer][:, :, self.length : end] = v
        return self.keys[layer][:, :, :end], self.values[layer][:, :, :end]


class Attention(nn.Module):
    """Causal self-attention over the heads of this tensor parallel rank."""

    def __init__(self, config: ModelConfig, layer: int, tp: TensorParallel) -> None:
        super().__init__()
        if config.hidden_size % config.num_heads:
            raise ValueError(f"hidden_size={config.hidden_size} is not a multiple of num_heads={config.num_heads}")
        self.layer = layer
        self.head_dim = config.hidden_size // config.num_heads
        self.heads_local = tp.share_of(config.num_heads, "num_heads")
        self.qkv = ColumnParallelLinear(config.hidden_size, config.hidden_size, tp, parts=3)
        self.out = RowParallelLinear(config.hidden_size, config.hidden_size, tp)

    def forward(self, x: torch.Tensor, mask: torch.Tensor, cache: KVCache | None) -> torch.Tensor:
        batch, length, _ = x.shape
        heads = self.qkv(x).view(batch, length, 3, self.heads_local, self.head_dim)
        q, k, v = heads.permute(2, 0, 3, 1, 4).unbind(0)
        if cache is not None:
            k, v = cache.append(self.layer, k, v)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        attended: torch.Tensor = self.out(y.transpose(1, 2).reshape(batch, length, -1))
        return attended


class MLP(nn.Module):
    """Two linear layers with GELU; the four-fold hidden layer is split over the tensor parallel ranks."""

    def __init__(self, config: ModelConfig, tp: TensorParallel) -> None:
        super().__init__()
        self.up = ColumnParallelLinear(config.hidden_size, 4 * config.hidden_size, tp)
        self.down = RowParallelLinear(4 * config.hidden_size, config.hidden_size, tp)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.down(F.gelu(self.up(x).squeeze(-2)))
        return y


class Block(nn.Module):
    """Attention and MLP, each on a normalised residual stream."""

    def __init__(self, config: ModelConfig, layer: int, tp: TensorParallel) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.hidden_size, bias=False)
        self.attention = Attention(config, layer, tp)
        self.mlp_norm = nn.LayerNorm(config.hidden_size, bias=False)
        self.mlp = MLP(config, tp)

    def forward(self, x: torch.Tensor, mask: torch.Tensor, cache: KVCache | None) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x), mask, cache)
        y: torch.Tensor = x + self.mlp(self.mlp_norm(x))
        return y


class Transformer(nn.Module):
    """Logits ``[batch, length, vocab]`` in float32 for int64 ``input_ids`` and ``position_ids`` ``[batch, length]``."""

    blocks: list[Block]

    def __init__(self, config: ModelConfig, tp: TensorParallel | None = None) -> None:
        super().__init__()
        tp = tp or TensorParallel()
        self.config = config
        self.token_embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        self.position_embedding = nn.Embedding(config.max_position, config.hidden_size)
        self.blocks = nn.ModuleList(Block(config, i, tp) for i in range(config.num_layers))  # type: ignore[assignment]
        self.final_norm = nn.LayerNorm(config.hidden_size, bias=False)
        self.head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def forward(
        self,
        input_ids: torch.Tensor,
        position_ids: torch.Tensor,
        key_mask: torch.Tensor,
        cache: KVCache | None = None,
    ) -> torch.Tensor:
        """``key_mask``: bool ``[batch, keys]``, true where a token is real; keys are the cached tokens and the new
        ones. The cache, when given, is filled and its length moved on.
        """
        length = input_ids.shape[1]
        past = cache.length if cache is not None else 0
        mask = attention_mask_of(key_mask, past, length)
        x = self.token_embedding(input_ids) + self.position_embedding(position_ids)
        for block in self.blocks:
            x = block(x, mask, cache)
        if cache is not None:
            cache.length = past + length
        logits: torch.Tensor = self.head(self.final_norm(x))
        return logits


def attention_mask_of(key_mask: torch.Tensor, past: int, length: int) -> torch.Tensor:
    """Bool ``[batch, 1, length, past + length]``: causal, and only real tokens as keys.

    A token may always attend to itself, so that the rows of padding have one key and no NaN arises.
    """
    queries = torch.arange(past, past + length).unsqueeze(1)
    keys = torch.arange(past + length).unsqueeze(0)
    allowed = (keys <= queries) & key_mask.bool()[:, None, None, :]
    return allowed | (keys == queries)
