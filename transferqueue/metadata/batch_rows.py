"""The row identity of a batch: global indexes and partitions, checked once when a batch is made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Indexes = NDArray[np.int64]
    Codes = NDArray[np.int32]


def checked_indexes(global_indexes: Any) -> Indexes:
    """A read-only int64 copy of `global_indexes` (ints in any sequence, array or tensor)."""
    array = np.asarray(global_indexes)
    if array.ndim != 1:
        raise ValueError(f"global_indexes must be one-dimensional, got shape {array.shape}")
    if array.size and array.dtype.kind not in "iu":
        raise TypeError(f"global_indexes must be ints, got {array.dtype} elements")
    indexes = array.astype(np.int64)  # copies
    if indexes.size and indexes.min() < 0:
        raise ValueError(f"global_indexes must not be negative, got {int(indexes.min())}")
    indexes.flags.writeable = False
    return indexes


def checked_partitions(partition_ids: str | Sequence[str], size: int) -> tuple[tuple[str, ...], Codes | None]:
    """(distinct names in order of appearance, which of them each row has; `None` when there is at most one).

    `partition_ids` is one name per row, or one name for all rows.
    """
    if isinstance(partition_ids, str):
        return (partition_ids,), None
    listed = list(partition_ids)
    if len(listed) != size:
        raise ValueError(f"partition_ids: {len(listed)} names do not match {size} global_indexes")
    names = tuple(dict.fromkeys(listed))
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"partition_ids must be strings, got {type(name).__name__}")
    if len(names) <= 1:
        return names, None
    numbers = {name: number for number, name in enumerate(names)}
    return names, np.fromiter((numbers[name] for name in listed), dtype=np.int32, count=size)


def take_partitions(
    names: tuple[str, ...], codes: Codes | None, selection: slice | Indexes
) -> tuple[tuple[str, ...], Codes | None]:
    """The partitions of the selected rows; a batch of one partition keeps its name even without rows."""
    if codes is None:
        return names, None
    selected = codes[selection]
    used, first_seen, renumbered = np.unique(selected, return_index=True, return_inverse=True)
    order = np.argsort(first_seen)
    if len(used) <= 1:
        return tuple(names[number] for number in used), None
    rank = np.empty(len(used), dtype=np.int32)
    rank[order] = np.arange(len(used), dtype=np.int32)
    return tuple(names[number] for number in used[order]), rank[renumbered.reshape(-1)]


def concat_partitions(
    pieces: Sequence[tuple[tuple[str, ...], Codes | None, int]],
) -> tuple[tuple[str, ...], Codes | None]:
    """The partitions of several batches (names, codes, rows) in a row."""
    names = tuple(dict.fromkeys(name for piece_names, _, _ in pieces for name in piece_names))
    if len(names) <= 1:
        return names, None
    numbers = {name: number for number, name in enumerate(names)}
    parts = []
    for piece_names, codes, rows in pieces:
        table = np.array([numbers[name] for name in piece_names], dtype=np.int32)
        parts.append(np.full(rows, table[0] if len(table) else 0, dtype=np.int32) if codes is None else table[codes])
    return take_partitions(names, np.concatenate(parts), slice(None))


def common_session(sessions: Sequence[str | None], owner: str) -> str | None:
    """The one session that is named; `ValueError` with both names where there are two."""
    named = list(dict.fromkeys(session for session in sessions if session is not None))
    if len(named) > 1:
        raise ValueError(f"{owner}: the pieces belong to different sessions, {named[0]!r} and {named[1]!r}")
    return named[0] if named else None
