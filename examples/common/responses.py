"""From a batch of prompts to the columns of their sampled responses."""

from __future__ import annotations

import torch
from tensordict import TensorDict

from examples.common.batching import jagged
from examples.common.generate import generate, positions_of
from examples.common.model import Transformer
from examples.common.tokenizer import PAD_ID


def sample_responses(
    model: Transformer, batch: TensorDict, width: int, temperature: float, generator: torch.Generator
) -> TensorDict:
    """One response of at most `width` tokens for each row of `prompts` (int64, padded on the left).

    Returns `responses` (jagged int64, eos included), `attention_mask` and `position_ids` (int64
    ``[rows, max_prompt_length + width]``, prompt and response side by side).
    """
    prompts = batch["prompts"]
    prompt_mask = prompts != PAD_ID
    generation = generate(
        model, prompts, prompt_mask, max_new_tokens=width, temperature=temperature, generator=generator
    )
    response_mask = torch.arange(width) < generation.lengths.unsqueeze(1)
    mask = torch.cat([prompt_mask, response_mask], dim=1)
    return TensorDict(
        {
            "responses": jagged(generation.rows()),
            "attention_mask": mask.long(),
            "position_ids": positions_of(mask),
        },
        batch_size=batch.batch_size,
    )
