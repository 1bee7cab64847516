"""Building nested tensors over memory that is already laid out; nothing is copied or checked row by row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from transferqueue.codec.jagged_assembly import jagged_assembler

if TYPE_CHECKING:
    from numpy.typing import NDArray

try:
    from torch.nested._internal.nested_tensor import NestedTensor, _store_val_in_tensor
except ImportError:  # a torch whose inside looks different: the public way costs 35 us more
    NestedTensor = None  # type: ignore[assignment, misc]


class JaggedParts(NamedTuple):
    """What a jagged tensor is made of; `lengths` where rows do not fill the space between offsets."""

    values: torch.Tensor
    offsets: torch.Tensor
    lengths: torch.Tensor | None
    ragged_dim: int  # within a row


def jagged_parts(tensor: Any) -> JaggedParts | None:
    """The parts of a jagged tensor, detached; None for any other tensor.

    Read as attributes: every method of a jagged tensor goes through Python dispatch, 5 to 25 us each.
    """
    if NestedTensor is not None and type(tensor) is NestedTensor:
        return JaggedParts(tensor._values.detach(), tensor._offsets, tensor._lengths, tensor._ragged_idx - 1)
    if not tensor.is_nested or tensor.layout is not torch.jagged:
        return None
    return JaggedParts(tensor.values().detach(), tensor.offsets(), tensor.lengths(), tensor._ragged_idx - 1)


def jagged_over(values: torch.Tensor, offsets: torch.Tensor, *, ragged_dim: int, shortest: int, longest: int) -> Any:
    """Jagged tensor of rows ``values[offsets[i]:offsets[i + 1]]``, whose dimension `ragged_dim` (of a row) is ragged.

    Args:
        values: [total, *rest]; the ragged dimension comes first in memory, and is moved to its place as a view.
        offsets: int64 [rows + 1].
        shortest, longest: of the rows; given so that nobody has to compute them again.
    """
    if ragged_dim:
        values = values.movedim(0, ragged_dim)
    assemble = jagged_assembler()
    if assemble is not None:
        return assemble(values, offsets, ragged_dim + 1, shortest, longest)
    return construct_jagged(values, offsets, ragged_dim + 1, shortest, longest)


def construct_jagged(values: torch.Tensor, offsets: torch.Tensor, ragged_idx: int, shortest: int, longest: int) -> Any:
    """As torch makes one; `ragged_idx` counts the rows' dimension."""
    if NestedTensor is not None:
        cache = {"min_seqlen": _store_val_in_tensor(shortest), "max_seqlen": _store_val_in_tensor(longest)}
        return NestedTensor(values, offsets, _ragged_idx=ragged_idx, _metadata_cache=cache)
    return torch.nested.nested_tensor_from_jagged(
        values, offsets, jagged_dim=ragged_idx, min_seqlen=shortest, max_seqlen=longest
    )


def strided_over(buffer: torch.Tensor, sizes: NDArray[np.int64]) -> Any:
    """Strided nested tensor of contiguous rows one after another in `buffer` (1-D); `sizes` is int64 [rows, rank]."""
    rows, rank = sizes.shape
    if rows == 0:
        return torch.nested.nested_tensor([], dtype=buffer.dtype)
    strides = np.ones((rows, rank), dtype=np.int64)
    if rank > 1:
        strides[:, :-1] = np.cumprod(sizes[:, :0:-1], axis=1)[:, ::-1]
    starts = np.zeros(rows, dtype=np.int64)
    np.cumsum(sizes.prod(axis=1)[:-1], out=starts[1:])
    return torch._nested_view_from_buffer(  # pyright: ignore[reportPrivateImportUsage]
        buffer, torch.from_numpy(sizes), torch.from_numpy(strides), torch.from_numpy(starts)
    )
