"""Rows that only fill a batch up to a divisible size.

A pad is a repetition of the last row with a flag. A worker sees it like any row; a put through the metadata does not
store it and a collect removes it, both by the flag, which follows its row through select, reorder, chunk and concat.
`None` stands for "no pads", the usual case.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Mask = NDArray[np.bool_]
    Selection = slice | NDArray[np.int64]


def rows_to_add(size: int, divisor: int) -> int:
    """How many pads make `size` a multiple of `divisor`; none for an empty batch, which has no row to repeat."""
    if isinstance(divisor, bool) or not isinstance(divisor, (int, np.integer)):
        raise TypeError(f"pad_to_divisor: the divisor must be an int, got {type(divisor).__name__}")
    if divisor < 1:
        raise ValueError(f"pad_to_divisor: the divisor must be at least 1, got {divisor}")
    return int(-size % divisor) if size else 0


def mask_or_none(mask: Mask) -> Mask | None:
    """A read-only `mask`, or `None` when it flags nothing."""
    if not mask.any():
        return None
    mask.flags.writeable = False
    return mask


def checked_mask(mask: Any, size: int) -> Mask | None:
    """A copy of a given mask. `ValueError` on another length."""
    array = np.array(mask, dtype=np.bool_)
    if array.shape != (size,):
        raise ValueError(f"padding_mask of shape {array.shape} does not match {size} rows")
    return mask_or_none(array)


def take_mask(mask: Mask | None, selection: Selection) -> Mask | None:
    """The flags of the selected rows."""
    return None if mask is None else mask_or_none(mask[selection].copy())


def pad_mask(mask: Mask | None, size: int, added: int) -> Mask | None:
    """The flags of `size` rows and `added` pads behind them."""
    flags = np.ones(size + added, dtype=np.bool_)
    flags[:size] = False if mask is None else mask
    return mask_or_none(flags)


def concat_masks(masks: Sequence[Mask | None], sizes: Sequence[int]) -> Mask | None:
    """The flags of several batches in a row."""
    if all(mask is None for mask in masks):
        return None
    parts = [full_mask(mask, size) for mask, size in zip(masks, sizes, strict=True)]
    return mask_or_none(np.concatenate(parts))


def full_mask(mask: Mask | None, size: int) -> Mask:
    """A fresh bool array [size], True where a row is a pad."""
    return np.zeros(size, dtype=np.bool_) if mask is None else mask.copy()
