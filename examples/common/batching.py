"""Between the jagged columns of the store and the padded tensors of the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDict

from examples.common.generate import positions_of
from examples.common.tokenizer import PAD_ID


@dataclass(frozen=True)
class PaddedBatch:
    """Prompt (padded on the left) and response (on the right) side by side, ``[rows, width + response_width]``.

    ``response_mask`` is ``[rows, response_width]``; masks are bool, ids int64.
    """

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    attention_mask: torch.Tensor
    responses: torch.Tensor
    response_mask: torch.Tensor

    def slice(self, rows: slice) -> PaddedBatch:
        """Some of the rows (views)."""
        return PaddedBatch(
            self.input_ids[rows],
            self.position_ids[rows],
            self.attention_mask[rows],
            self.responses[rows],
            self.response_mask[rows],
        )


def pad_left(rows: Sequence[Sequence[int]], width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and bool mask ``[rows, width]``; ValueError when a row is longer."""
    longest = max((len(row) for row in rows), default=0)
    if longest > width:
        raise ValueError(f"a prompt has {longest} tokens, data.max_prompt_length is {width}")
    ids = torch.full((len(rows), width), PAD_ID, dtype=torch.int64)
    mask = torch.zeros(len(rows), width, dtype=torch.bool)
    for i, row in enumerate(rows):
        if len(row):
            ids[i, width - len(row) :] = torch.tensor(row, dtype=torch.int64)
            mask[i, width - len(row) :] = True
    return ids, mask


def jagged(rows: Sequence[torch.Tensor]) -> torch.Tensor:
    """1-D tensors of different lengths as one jagged nested tensor."""
    return torch.nested.nested_tensor(list(rows), layout=torch.jagged)


def jagged_like(padded: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """The first ``lengths[i]`` entries of each row of ``[rows, width]``, jagged (one copy)."""
    return jagged([row[:length] for row, length in zip(padded, lengths.tolist(), strict=True)])


def pad_right(column: torch.Tensor, width: int, value: float = 0) -> torch.Tensor:
    """A jagged column as ``[rows, width]`` (one copy); ValueError when a row is longer than ``width``."""
    longest = int(lengths_of(column).max()) if column.shape[0] else 0
    if longest > width:
        raise ValueError(f"a row has {longest} entries, the width is {width}")
    padded: torch.Tensor = torch.nested.to_padded_tensor(column, value, (int(column.shape[0]), width))
    return padded


def lengths_of(column: torch.Tensor) -> torch.Tensor:
    """Length of each row of a jagged column, int64."""
    offsets: torch.Tensor = column.offsets()  # type: ignore[attr-defined]  # only nested tensors have it
    return offsets.diff()


def join(prompts: torch.Tensor, prompt_mask: torch.Tensor, responses: torch.Tensor, width: int) -> PaddedBatch:
    """Left-padded prompts ``[rows, p]`` and jagged responses as one padded batch of ``p + width`` columns."""
    padded = pad_right(responses, width, PAD_ID)
    response_mask = torch.arange(width) < lengths_of(responses).unsqueeze(1)
    mask = torch.cat([prompt_mask.bool(), response_mask], dim=1)
    return PaddedBatch(torch.cat([prompts, padded], dim=1), positions_of(mask), mask, padded, response_mask)


def padded_of(batch: TensorDict, width: int) -> PaddedBatch:
    """The sequences of a batch with `prompts`, `responses`, `attention_mask` and `position_ids`, from a rollout."""
    prompts = batch["prompts"]
    padded = join(prompts, batch["attention_mask"][:, : prompts.shape[1]], batch["responses"], width)
    # The rollout's positions are the ones that count; they are the same as those that join derives.
    return PaddedBatch(
        padded.input_ids, batch["position_ids"], padded.attention_mask, padded.responses, padded.response_mask
    )


def strings_of(batch: TensorDict, name: str) -> list[str]:
    """A column of strings as a list with one entry per row."""
    column: Any = batch.get(name)
    values = column.tolist() if hasattr(column, "tolist") else [column] * batch.batch_size[0]
    return [str(value) for value in values]
