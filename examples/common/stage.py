"""A stage of a training step: whose method, which fields it reads, which it adds to the same rows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Stage:
    """`group.method` is called with a batch of the fields `inputs` and returns one with the fields `outputs`."""

    name: str
    group: str
    method: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


SEQUENCE_FIELDS = ("prompts", "responses", "attention_mask", "position_ids")
