"""Rows of a whole TensorDict: split, join, pad, drop. Copies; nothing shares memory with its source."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from tensordict import TensorDict, TensorDictBase

from transferqueue.errors import SchemaMismatchError
from transferqueue.workers.columns import is_constant, join_columns, take_rows


def split_sizes(rows: int, parts: int) -> list[int]:
    """`parts` sizes that add up to `rows`; the first ``rows % parts`` are one larger, some may be 0."""
    base, longer = divmod(rows, parts)
    return [base + (part < longer) for part in range(parts)]


def batch_rows(batch: TensorDictBase) -> int:
    """Rows of a batch; `SchemaMismatchError` for a TensorDict without a batch dimension."""
    if not batch.batch_size:
        raise SchemaMismatchError("a TensorDict without a batch dimension has no rows: give it batch_size=[rows]")
    return int(batch.batch_size[0])


def take_batch(batch: TensorDictBase, start: int, stop: int) -> TensorDict:
    """Rows [start, stop) of every field, as copies of their own."""
    return TensorDict({name: take_rows(batch.get(name), start, stop) for name in batch.keys()}, [stop - start])


def split_batch(batch: TensorDictBase, parts: int) -> list[TensorDict]:
    """`parts` batches of consecutive rows, sized as `split_sizes` says."""
    pieces, start = [], 0
    for size in split_sizes(batch_rows(batch), parts):
        pieces.append(take_batch(batch, start, start + size))
        start += size
    return pieces


def join_batches(batches: Sequence[TensorDictBase]) -> TensorDict:
    """The rows of all batches in order. Batches without rows are skipped, unless all are.

    Raises `SchemaMismatchError` where the pieces have different fields, dtypes or shapes.
    """
    filled = [batch for batch in batches if batch_rows(batch)] or list(batches[:1])
    fields = {name for name in filled[0].keys() if not is_constant(filled[0].get(name))}
    for batch in filled[1:]:
        found = {name for name in batch.keys() if not is_constant(batch.get(name))}
        if found != fields:
            raise SchemaMismatchError(
                f"batches with different fields cannot be joined: {sorted(fields)} and {sorted(found)}",
                fields=tuple(sorted(fields ^ found)),
                expected=sorted(fields),
                found=sorted(found),
            )
    names = list(dict.fromkeys(name for batch in filled for name in batch.keys()))
    joined = {name: join_columns(name, [batch.get(name) for batch in filled if name in batch.keys()]) for name in names}
    return TensorDict(joined, batch_size=[sum(batch_rows(batch) for batch in filled)])


def keep_rows(batch: TensorDictBase, keep: npt.NDArray[np.bool_]) -> TensorDict:
    """The rows where `keep` [rows] is True, in order."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], keep, [False]))))
    if not len(edges):
        return take_batch(batch, 0, 0)
    return join_batches([take_batch(batch, int(start), int(stop)) for start, stop in edges.reshape(-1, 2)])


def pad_batch(batch: TensorDictBase, divisor: int) -> tuple[TensorDictBase, int]:
    """`batch` with its last row repeated up to a multiple of `divisor`, and how many rows were added.

    A batch without rows stays as it is: there is nothing to repeat.
    """
    rows = batch_rows(batch)
    added = -rows % divisor if rows else 0
    if not added:
        return batch, 0
    last = take_batch(batch, rows - 1, rows)
    return join_batches([batch, *[last] * added]), added
