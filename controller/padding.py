"""Rows that do not divide by the shards of a call: refused, or made to by pads, which its result does not have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from transferqueue.metadata import BatchMeta, KVBatchMeta
from transferqueue.workers.arguments import PerRank
from transferqueue.workers.errors import DispatchError
from transferqueue.workers.padding_mask import PaddedBatch
from transferqueue.workers.row_batch import kind_of
from transferqueue.workers.splitting import Dispatched, SameLength, batches_of, each_argument


@dataclass(frozen=True)
class Padding:
    """`added` rows at the end of batches that have `padded_rows` with them, in `shards` shards of equal size.

    `shard_of_rank` says which rank got which; empty where the mode does not tell.
    """

    padded_rows: int = 0
    added: int = 0
    shards: int = 1
    shard_of_rank: tuple[int, ...] = ()
    by_value: int | str | None = None
    """The argument (position or name) that is the first batch by value. Metadata says by itself which rows are pads."""

    def tell_ranks(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Dispatched:
        """The dispatched arguments with `PaddedBatch`es in place of the pieces of that batch."""

        def told(argument: int | str, value: Any) -> Any:
            if argument != self.by_value or not isinstance(value, PerRank) or not self.shard_of_rank:
                return value
            size = self.padded_rows // self.shards
            # One object for each shard, which ranks of one replica share.
            padded: dict[int, PaddedBatch] = {}
            for shard, piece in zip(self.shard_of_rank, value, strict=True):
                padded.setdefault(shard, PaddedBatch(piece, size, self._pads_in(shard)))
            return PerRank(padded[shard] for shard in self.shard_of_rank)

        return each_argument(told, args, kwargs)

    def trim_outputs(self, outputs: list[Any]) -> list[Any]:
        """The outputs of all ranks without what belongs to pads: the last rows of those that are row for row what the
        rank got, as a batch, a list, an array or a tensor."""
        if not self.added or len(outputs) != len(self.shard_of_rank):
            return outputs
        size = self.padded_rows // self.shards
        return [
            _without_last(output, size, self._pads_in(shard))
            for output, shard in zip(outputs, self.shard_of_rank, strict=True)
        ]

    def of_rank(self, rank: int) -> tuple[int, int]:
        """(rows, pads among them) of the shard that a rank got; zeros where nothing was padded."""
        if not self.added or rank >= len(self.shard_of_rank):
            return 0, 0
        return self.padded_rows // self.shards, self._pads_in(self.shard_of_rank[rank])

    def drop_from(self, result: Any) -> Any:
        """A result without the pads. Of a list with one element for each shard, those of shards that were nothing but
        pads are left out, so that they count in no metric; one that is not row for row, or shard for shard, what was
        sent stays as it is."""
        if not self.added:
            return result
        if type(result) is list and len(result) == self.shards:
            return result[: self._filled_shards()]
        return _without_last(result, self.padded_rows, self.added)

    def _filled_shards(self) -> int:
        size = self.padded_rows // self.shards
        return -(-(self.padded_rows - self.added) // size)

    def _pads_in(self, shard: int) -> int:
        size = self.padded_rows // self.shards
        filled = self.padded_rows - self.added - shard * size
        return size - min(max(filled, 0), size)


def _without_last(value: Any, rows: int, pads: int) -> Any:
    if not pads:
        return value
    kind = kind_of(value)
    if kind is not None:
        return kind.drop(value, rows, pads)
    by_row = type(value) is list or (isinstance(value, (np.ndarray, torch.Tensor)) and value.ndim > 0)
    return value[: rows - pads] if by_row and len(value) == rows else value


def padded_arguments(
    args: Sequence[Any], kwargs: Mapping[str, Any], shards: int, shard_of_rank: Sequence[int] = ()
) -> tuple[tuple[Any, ...], dict[str, Any], Padding]:
    """The arguments with every batch padded to a multiple of `shards` rows. The caller's batches are not changed.

    Raises `DispatchError` for batches of different length.
    """
    check_same_length(args, kwargs)
    found: dict[int | str, Any] = {}
    padding = Padding()
    for argument, batch, kind in batches_of(args, kwargs):
        found[argument], added = kind.pad(batch, shards)
        rows = kind.size(batch)
        if added and rows is not None:
            by_value = None if isinstance(batch, (BatchMeta, KVBatchMeta)) else argument
            first = by_value if padding.by_value is None else padding.by_value
            padding = Padding(rows + added, added, shards, tuple(shard_of_rank), first)
    new_args, new_kwargs = each_argument(lambda argument, value: found.get(argument, value), args, kwargs)
    return new_args, new_kwargs, padding


def refuse_uneven(args: Sequence[Any], kwargs: Mapping[str, Any], shards: int) -> None:
    """Raises `DispatchError` for batches whose rows do not divide by `shards`."""
    for argument, batch, kind in batches_of(args, kwargs):
        rows = kind.size(batch)
        if rows is not None and rows % shards:
            raise DispatchError.about(
                argument,
                f"has {rows} rows, which do not divide by the {shards} shards of the call, and uneven='error' refuses "
                "that: pass rows that divide, pad them (auto_padding=True), or allow uneven='spread'",
            )


def check_same_length(args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raises `DispatchError` for batches of different length."""
    length = SameLength()
    for argument, batch, kind in batches_of(args, kwargs):
        length.check(argument, kind.size(batch))


def wants_padding(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a batch among the arguments asks for padding by itself."""
    for value in (*args, *kwargs.values()):
        kind = kind_of(value)
        if kind is not None and kind.wants_padding is not None and kind.wants_padding(value):
            return True
    return False
