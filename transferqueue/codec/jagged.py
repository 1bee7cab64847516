"""The description of a jagged field that is allocated rather than put."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from transferqueue.codec.dtypes import is_storable
from transferqueue.errors import SchemaMismatchError


class Jagged:
    """Rows ``[length, *row_shape]`` of one dtype, each with a length of its own.

    Attributes:
        lengths: int64 [rows].
        dtype: of the elements.
        row_shape: what follows the ragged dimension.

    Raises:
        SchemaMismatchError: lengths that are negative or not one-dimensional integers, an unknown dtype, sizes below 0.
    """

    __slots__ = ("dtype", "lengths", "row_shape")

    def __init__(
        self, lengths: Sequence[int] | torch.Tensor | Any, dtype: torch.dtype, row_shape: Sequence[int] = ()
    ) -> None:
        given = _as_array(lengths)
        if given.ndim != 1 or not (given.dtype.kind in "iu" or given.size == 0):
            raise SchemaMismatchError(f"lengths must be one int per row, got {lengths!r}"[:200], found=given.dtype)
        if (given < 0).any():
            raise SchemaMismatchError("lengths must not be negative", found=int(given.min()))
        if not isinstance(dtype, torch.dtype) or not is_storable(dtype):
            raise SchemaMismatchError(f"{dtype!r} is not a torch dtype that can be stored", found=dtype)
        try:
            sizes = tuple(int(operator.index(size)) for size in row_shape)
        except (TypeError, ValueError, RuntimeError) as error:
            raise SchemaMismatchError(f"row_shape must be ints, got {row_shape!r}"[:200], found=row_shape) from error
        if any(size < 0 for size in sizes):
            raise SchemaMismatchError(f"row_shape {sizes} has a negative size", found=sizes)
        self.lengths = np.array(given, dtype=np.int64)
        self.dtype = dtype
        self.row_shape = sizes

    def __len__(self) -> int:
        return len(self.lengths)

    def __repr__(self) -> str:
        shape = f", row_shape={self.row_shape}" if self.row_shape else ""
        return f"Jagged({len(self)} rows, {int(self.lengths.sum())} in all, {self.dtype}{shape})"


def _as_array(lengths: Any) -> np.ndarray[Any, Any]:
    if not isinstance(lengths, torch.Tensor):
        return np.asarray(lengths)
    try:
        return lengths.detach().cpu().resolve_conj().resolve_neg().numpy()
    except (RuntimeError, TypeError) as error:  # a tensor without values of its own: meta, nested, sparse
        raise SchemaMismatchError(f"lengths must be one int per row, got {lengths!r}"[:200]) from error
