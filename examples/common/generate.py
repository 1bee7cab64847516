"""Batched sampling with a key-value cache: left-padded prompts in, right-padded responses out."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from examples.common.model import KVCache, Transformer
from examples.common.tokenizer import EOS_ID, PAD_ID


@dataclass(frozen=True)
class Generation:
    """``tokens`` int64 ``[rows, steps]``, padded after eos; ``lengths`` int64 ``[rows]``, eos counted."""

    tokens: torch.Tensor
    lengths: torch.Tensor

    def rows(self) -> list[torch.Tensor]:
        """The response of each row without padding (views)."""
        return [row[:length] for row, length in zip(self.tokens, self.lengths.tolist(), strict=True)]


def positions_of(mask: torch.Tensor) -> torch.Tensor:
    """Position of each token among the real ones of its row, int64; 0 for the padding on the left."""
    return (mask.long().cumsum(dim=-1) - 1).clamp(min=0)


def sample_tokens(logits: torch.Tensor, temperature: float, generator: torch.Generator) -> torch.Tensor:
    """One token per row of ``[rows, vocab]``; the most likely one when the temperature is 0."""
    if temperature < 0:
        raise ValueError(f"temperature must not be negative, got {temperature}")
    if temperature == 0:
        return logits.argmax(dim=-1)
    probabilities = torch.softmax(logits.float() / temperature, dim=-1)
    return torch.multinomial(probabilities, num_samples=1, generator=generator).squeeze(1)


@torch.inference_mode()
def generate(
    model: Transformer,
    prompts: torch.Tensor,
    prompt_mask: torch.Tensor,
    *,
    max_new_tokens: int,
    temperature: float,
    generator: torch.Generator,
) -> Generation:
    """Responses to left-padded int64 ``prompts`` ``[rows, width]`` with their mask.

    Ends when every row has sampled eos or at ``max_new_tokens``. The draw depends on the generator only.
    """
    rows, width = prompts.shape
    mask = torch.cat([prompt_mask.bool(), torch.ones(rows, max_new_tokens, dtype=torch.bool)], dim=1)
    positions = positions_of(mask)
    cache = KVCache(model, rows, width + max_new_tokens)
    tokens = torch.full((rows, max_new_tokens), PAD_ID, dtype=torch.int64)
    lengths = torch.zeros(rows, dtype=torch.int64)
    running = torch.ones(rows, dtype=torch.bool)
    inputs = prompts
    for step in range(max_new_tokens):
        end = width + step
        logits = model(inputs, positions[:, end - inputs.shape[1] : end], mask[:, :end], cache)
        chosen = sample_tokens(logits[:, -1], temperature, generator)
        tokens[:, step] = torch.where(running, chosen, PAD_ID)
        lengths += running
        running &= chosen != EOS_ID
        if not running.any():
            return Generation(tokens[:, : step + 1], lengths)
        inputs = chosen.unsqueeze(1)
    return Generation(tokens, lengths)
