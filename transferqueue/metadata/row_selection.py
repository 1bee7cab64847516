"""Which rows: checks of user-given positions, permutations and splits, shared by both kinds of metadata."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from transferqueue.errors import name_some

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Positions = NDArray[np.int64]


def as_positions(indices: Any, size: int, what: str = "sample indices") -> Positions:
    """`indices` (ints in any sequence, array or tensor; or a boolean mask array of `size`) as int64 positions.

    Raises `TypeError` for other element types, `ValueError` outside [0, size).
    """
    if isinstance(indices, (str, bytes)) or np.ndim(indices) != 1:
        raise TypeError(f"{what} must be a one-dimensional sequence of ints, got {type(indices).__name__}")
    array = np.asarray(indices)
    if array.size == 0:
        return np.empty(0, dtype=np.int64)
    if array.dtype == np.bool_ and not isinstance(indices, (list, tuple)):
        if array.size != size:
            raise ValueError(f"{what}: a mask of {array.size} entries does not fit {size} rows")
        return np.flatnonzero(array)
    if not (np.issubdtype(array.dtype, np.integer) or array.dtype == np.bool_):
        raise TypeError(f"{what} must be ints, got {array.dtype} elements")
    outside = array[(array < 0) | (array >= size)]
    if outside.size:
        raise ValueError(f"{what} must be in range [0, {size}), got {name_some(outside.tolist())}")
    return array.astype(np.int64)


def as_permutation(indices: Any, size: int, what: str = "indices") -> Positions:
    """`indices` as a permutation of `size` rows. Raises `ValueError` on length, duplicates or range."""
    if len(indices) != size:
        raise ValueError(f"reorder: length of {what} {len(indices)} does not match the batch size {size}")
    positions = as_positions(indices, size, what=f"reorder {what}")
    counts = np.bincount(positions, minlength=size)
    if len(positions) != size or (counts > 1).any():
        repeated = np.flatnonzero(counts > 1).tolist()
        raise ValueError(f"reorder: Contain duplicate {what}: {name_some(repeated)}")
    return positions


def item_positions(item: Any, size: int, owner: str) -> slice | Positions:
    """What ``meta[item]`` selects: an int (`IndexError` outside) or a slice; anything else is a `TypeError`."""
    if isinstance(item, slice):
        start, stop, step = item.indices(size)
        return slice(start, max(start, stop)) if step == 1 else np.arange(start, stop, step, dtype=np.int64)
    if isinstance(item, (bool, np.bool_)) or not isinstance(item, (int, np.integer)):
        raise TypeError(
            f"indexing {owner} with {type(item).__name__} is not supported; use an int, a slice or a select method"
        )
    position = int(item) + size if item < 0 else int(item)
    if not 0 <= position < size:
        raise IndexError(f"{owner} index {int(item)} is out of range for {size} rows")
    return slice(position, position + 1)


def chunk_slices(size: int, chunks: int) -> Sequence[slice]:
    """`chunks` consecutive slices over `size` rows; the first ``size % chunks`` are one longer, some may be empty."""
    if isinstance(chunks, bool) or not isinstance(chunks, (int, np.integer)):
        raise TypeError(f"chunk: the number of pieces must be an int, got {type(chunks).__name__}")
    if chunks < 1:
        raise ValueError(f"chunk: the number of pieces must be at least 1, got {chunks}")
    base, longer = divmod(size, int(chunks))
    bounds = [i * base + min(i, longer) for i in range(int(chunks) + 1)]
    return [slice(start, stop) for start, stop in pairwise(bounds)]
