"""The bytes of chosen rows of a resolved field: viewed where they lie, or gathered into fresh memory."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.utils import dlpack

from transferqueue._native import DENSE, RAGGED
from transferqueue.errors import CorruptSegmentError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from transferqueue import _native

    Pieces = NDArray[np.int64]  # [p, 4]: first requested row, count, block, row in block


class RowReader:
    """Reads rows of one `Resolved`, and counts what it viewed and copied.

    Args:
        resolved: rows x fields at one snapshot.
        mode: "cow" views privately, "shared" views read-only, "copy" never views.
        copy_below: stretches of fewer bytes are copied.
        offsets: of jagged columns that were read already.
    """

    def __init__(
        self, resolved: _native.Resolved, mode: str, copy_below: int, offsets: Sequence[torch.Tensor] = ()
    ) -> None:
        self.resolved = resolved
        self._views = mode != "copy"
        self._shared = mode == "shared"
        self.copy_below = max(copy_below, 1)
        self.viewed_nbytes = 0
        self.copied_nbytes = 0
        self._offsets: list[tuple[NDArray[np.int64], torch.Tensor]] = [(known.numpy(), known) for known in offsets]

    def fixed(self, field: int, pieces: Pieces, row_nbytes: int) -> torch.Tensor:
        """Rows of `row_nbytes` each: uint8 [rows * row_nbytes]."""
        if len(pieces) == 1:
            _, count, block, row = pieces[0].tolist()
            layout = self._layout(field, block)
            if layout.kind != DENSE or layout.row_nbytes != row_nbytes:
                raise self._other_rows(field, row_nbytes)
            nbytes = count * row_nbytes
            if self._views and nbytes >= self.copy_below:
                view = self._view(block, layout.data_offset + row * row_nbytes, nbytes)
                if view is not None:
                    return view
        else:
            if (self.resolved.row_nbytes(field, pieces) != row_nbytes).any():
                raise self._other_rows(field, row_nbytes)
            nbytes = int(pieces[:, 1].sum()) * row_nbytes
        return self._gathered(field, pieces, nbytes)

    def ragged(self, field: int, pieces: Pieces) -> tuple[torch.Tensor, NDArray[np.int64]]:
        """Rows of their own sizes: uint8 [total bytes], int64 [rows + 1] offsets in it. Some pieces may be dense."""
        if len(pieces) == 1:
            _, count, block, row = pieces[0].tolist()
            layout = self._layout(field, block)
            if layout.kind == RAGGED:
                offsets = self._stored_offsets(layout, block, row, count)
                start, nbytes = int(offsets[0]), int(offsets[-1] - offsets[0])
                if self._views and nbytes >= self.copy_below:
                    view = self._view(block, layout.data_offset + start, nbytes)
                    if view is not None:
                        return view, offsets - start
                return self._gathered(field, pieces, nbytes), offsets - start
        sizes = self.resolved.row_nbytes(field, pieces)
        offsets = np.zeros(len(sizes) + 1, dtype=np.int64)
        np.cumsum(sizes, out=offsets[1:])
        return self._gathered(field, pieces, int(offsets[-1])), offsets

    def as_tensor(self, offsets: NDArray[np.int64]) -> torch.Tensor:
        """`offsets` as a tensor, the same object for equal offsets.

        Jagged tensors whose offsets are one object have one ragged size, so that arithmetic between fields of equal
        lengths (a mask on log-probs) works as it did before the put.
        """
        for known, tensor in self._offsets:
            if np.array_equal(known, offsets):
                return tensor
        tensor = torch.from_numpy(offsets)
        self._offsets.append((offsets, tensor))
        return tensor

    def _other_rows(self, field: int, row_nbytes: int) -> CorruptSegmentError:
        return CorruptSegmentError(
            f"rows of field {self.resolved.fields[field]!r} are not the {row_nbytes} bytes that their type says"
        )

    def _layout(self, field: int, block: int) -> _native.FieldLayout:
        layout = self.resolved.layout(field, block)
        if layout is None:
            raise CorruptSegmentError(f"field {self.resolved.fields[field]!r} has rows in a block that lacks it")
        return layout

    def _stored_offsets(self, layout: _native.FieldLayout, block: int, row: int, count: int) -> NDArray[np.int64]:
        address = self.resolved.view_address(block, layout.offsets_offset + 8 * row)
        offsets = np.frombuffer(ctypes.string_at(address, 8 * (count + 1)), dtype=np.int64)
        if offsets[0] < 0 or offsets[-1] > layout.data_nbytes or (offsets[1:] < offsets[:-1]).any():
            raise CorruptSegmentError(f"the row offsets of field {layout.name!r} are out of order or out of the block")
        return offsets

    def _view(self, block: int, offset: int, nbytes: int) -> torch.Tensor | None:
        try:
            capsule = self.resolved.view(block, offset, nbytes, shared=self._shared)
        except MemoryError:
            return None  # no further mapping can be made: the caller copies
        self.viewed_nbytes += nbytes
        return dlpack.from_dlpack(capsule)

    def _gathered(self, field: int, pieces: Pieces, nbytes: int) -> torch.Tensor:
        fresh = torch.empty(nbytes, dtype=torch.uint8)
        if nbytes:
            written = self.resolved.copy_rows(field, pieces, fresh.data_ptr(), nbytes)
            if written != nbytes:
                raise CorruptSegmentError(
                    f"field {self.resolved.fields[field]!r}: rows of {nbytes} bytes gave {written} bytes"
                )
            self.copied_nbytes += nbytes
        return fresh
