"""Pads that make the shards of a call equally long, and their removal from its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transferqueue.workers.row_batch import kind_of


@dataclass(frozen=True)
class Padding:
    """`added` rows at the end of a batch that has `padded_rows` with them; those of a call's first batch."""

    padded_rows: int = 0
    added: int = 0

    def drop_from(self, result: Any) -> Any:
        """A result without the pads; one that is no batch, or not row for row the padded one, as it is."""
        kind = kind_of(result)
        return result if kind is None else kind.drop(result, self.padded_rows, self.added)


def padded_arguments(
    args: Sequence[Any], kwargs: Mapping[str, Any], shards: int
) -> tuple[tuple[Any, ...], dict[str, Any], Padding]:
    """The arguments with every batch padded to a multiple of `shards` rows. The caller's batches are not changed."""
    first: Padding | None = None

    def padded(value: Any) -> Any:
        nonlocal first
        kind = kind_of(value)
        if kind is None:
            return value
        batch, added = kind.pad(value, shards)
        first = first or Padding(kind.size(batch), added)
        return batch

    new_args = tuple(padded(arg) for arg in args)
    new_kwargs = {name: padded(value) for name, value in kwargs.items()}
    return new_args, new_kwargs, first or Padding()
