"""The rows of a `DataProto`: taking, splitting, joining, repeating, ordering them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from tensordict import TensorDictBase

from transferqueue.workers.batch_rows import join_batches, split_sizes
from transferqueue.workers.column_rows import choose_batch
from transferqueue.workers.data_proto.errors import DataProtoError
from transferqueue.workers.data_proto.item import DataProtoItem
from transferqueue.workers.data_proto.merging import joined_columns, merged_meta_info
from transferqueue.workers.data_proto.parts import Parts
from transferqueue.workers.padding_config import DataProtoConfig

Self = TypeVar("Self", bound="RowMethods")


class RowMethods(Parts):
    """Part of `DataProto`."""

    def __getitem__(self, item: Any) -> Any:
        """Rows by slice, list, array or tensor (also of bools) as a new object; by int as a `DataProtoItem`.

        Raises `TypeError` for other indexes, `IndexError` for rows that are not there.
        """
        if isinstance(item, slice):
            return self.slice(item.start, item.stop, item.step)
        if isinstance(item, (list, np.ndarray, torch.Tensor)):
            return self.select_idxs(item)
        if isinstance(item, (int, np.integer)):
            row = int(item)
            if not -len(self) <= row < len(self):
                raise IndexError(f"row {row} of a DataProto with {len(self)} rows")
            return DataProtoItem(
                batch=None if self.batch is None else self.batch[row],
                non_tensor_batch={name: column[row] for name, column in self.non_tensor_batch.items()},
                meta_info=self.meta_info,
            )
        raise TypeError(f"Indexing with {type(item)} is not supported")

    def slice(self: Self, start: int | None = None, end: int | None = None, step: int | None = None) -> Self:
        """Rows ``[start:end:step]``. Dense columns are views of this object's, ragged ones copies."""
        rows = slice(start, end, step)
        return self._like(
            None if self.batch is None else _sliced(self.batch, rows),
            {name: column[rows] for name, column in self.non_tensor_batch.items()},
        )

    def select_idxs(self: Self, idxs: Any) -> Self:
        """The rows at these positions (list, array or tensor of ints, or of bools as a mask), in this order; a copy.

        Raises `IndexError` for positions beyond the rows, `DataProtoError` for a mask of another length.
        """
        positions = as_positions(idxs, len(self))
        return self._like(
            None if self.batch is None else choose_batch(self.batch, positions),
            {name: column[positions] for name, column in self.non_tensor_batch.items()},
        )

    def chunk(self: Self, chunks: int, *, uneven: bool = False) -> list[Self]:
        """`chunks` pieces of consecutive rows; dense columns are views, `meta_info` is a dict of each piece's own.

        With `uneven`, or where padding is enabled, any number of rows goes into any number of pieces, whose sizes
        differ by at most one; else `DataProtoError` unless the rows divide.
        """
        if chunks < 1:
            raise DataProtoError(f"chunk needs at least one piece, got {chunks}")
        if len(self) % chunks and not uneven and not self.is_padding_enabled():
            raise DataProtoError(
                f"only support equal chunk. Got size of DataProto {len(self)} and chunk {chunks}. "
                "chunk(n, uneven=True) makes pieces that differ by at most one row"
            )
        pieces, start = [], 0
        for size in split_sizes(len(self), chunks):
            pieces.append(self.slice(start, start + size))
            start += size
        return pieces

    def split(self: Self, split_size: int) -> list[Self]:
        """Pieces of `split_size` consecutive rows, the last one shorter where they do not divide."""
        if split_size < 1:
            raise DataProtoError(f"split needs pieces of at least one row, got {split_size}")
        return [self.slice(start, start + split_size) for start in range(0, len(self), split_size)]

    @staticmethod
    def concat(data: Sequence[Any]) -> Any:
        """The rows of all in order, copied. Pieces without rows are left out, unless all are.

        Batch-wide values are united: a name may be in some pieces only. ``meta_info["metrics"]`` (a dict of numbers, or
        a list of such) becomes a dict of lists with the entries of every piece that has it.

        Raises `DataProtoError` for pieces with different columns, or a batch-wide value that differs between pieces.
        """
        from transferqueue.workers.data_proto.data_proto import DataProto

        if not data:
            return DataProto()
        filled = [piece for piece in data if len(piece)] or [data[0]]
        batches = [piece.batch for piece in filled]
        if any((batch is None) != (batches[0] is None) for batch in batches):
            raise DataProtoError("concat: some pieces have a tensor batch, others have none")
        return type(filled[0])(
            batch=None if batches[0] is None else _joined(batches),
            non_tensor_batch=joined_columns([piece.non_tensor_batch for piece in filled]),
            meta_info=merged_meta_info([piece.meta_info for piece in data]),
        )

    def reorder(self, indices: Any) -> None:
        """Puts the rows into another order, in place; a position may come twice, or not at all."""
        ordered = self.select_idxs(indices)
        self.batch, self.non_tensor_batch = ordered.batch, ordered.non_tensor_batch

    def repeat(self: Self, repeat_times: int = 2, interleave: bool = True) -> Self:
        """Every row `repeat_times` times: ``a a b b`` when interleaved, else ``a b a b``. A copy."""
        rows = np.arange(len(self))
        return self.select_idxs(np.repeat(rows, repeat_times) if interleave else np.tile(rows, repeat_times))

    def sample_level_repeat(self: Self, repeat_times: Any) -> Self:
        """Row i ``repeat_times[i]`` times (list, tuple, array or 1-D tensor), 0 included; a copy.

        Raises `DataProtoError` unless there is one number per row.
        """
        if not isinstance(repeat_times, (list, tuple, np.ndarray, torch.Tensor)):
            raise DataProtoError(
                "repeat_times type must be in [list, torch.Tensor, np.ndarray, tuple], "
                f"got {type(repeat_times).__name__}"
            )
        times = np.asarray(repeat_times.cpu() if isinstance(repeat_times, torch.Tensor) else repeat_times)
        if times.shape != (len(self),):
            raise DataProtoError(
                f"repeat_times has the shape {times.shape}; there are {len(self)} rows, one number each"
            )
        return self.select_idxs(np.repeat(np.arange(len(self)), times.astype(np.int64)))

    def is_padding_enabled(self) -> bool:
        """Whether this batch is padded before it is spread: made with ``auto_padding=True``, or all are (see
        `DataProtoConfig.auto_padding`)."""
        return bool(self.meta_info.get(DataProtoConfig.auto_padding_key, False)) or DataProtoConfig.auto_padding

    def padding(self, padding_size: int, padding_candidate: str = "") -> None:
        """Appends the first (``"first"``) or the last row `padding_size` times, in place."""
        if not padding_size:
            return
        if not len(self):
            raise DataProtoError("a batch without rows has no row to repeat as padding")
        repeated = 0 if padding_candidate == "first" else len(self) - 1
        self.reorder(np.concatenate((np.arange(len(self)), np.full(padding_size, repeated))))


def as_positions(indexes: Any, rows: int) -> npt.NDArray[np.int64]:
    """Indexes or a mask as positions in [0, rows)."""
    found = np.asarray(indexes.detach().cpu() if isinstance(indexes, torch.Tensor) else indexes)
    if found.dtype == bool:
        if found.shape != (rows,):
            raise DataProtoError(f"a mask of shape {found.shape} for {rows} rows", expected=rows, found=found.shape)
        return np.flatnonzero(found)
    if found.ndim != 1 or (found.size and found.dtype.kind not in "iu"):
        raise TypeError(f"rows are selected by a list of ints or bools, got shape {found.shape} of {found.dtype}")
    positions = found.astype(np.int64)
    wrong = (positions < -rows) | (positions >= rows)
    if wrong.any():
        raise IndexError(f"row {int(positions[wrong][0])} of a DataProto with {rows} rows")
    return np.where(positions < 0, positions + rows, positions)


def _plain(batch: TensorDictBase) -> bool:
    return all(isinstance(column, torch.Tensor) and not column.is_nested for column in batch.values())


def _sliced(batch: TensorDictBase, rows: slice) -> Any:
    if _plain(batch):
        return batch[rows]
    return choose_batch(batch, np.arange(batch.batch_size[0])[rows])


def _joined(batches: Sequence[TensorDictBase]) -> Any:
    names = set(batches[0].keys())
    if all(_plain(batch) and set(batch.keys()) == names for batch in batches):
        try:
            return torch.cat(list(batches), dim=0)
        except RuntimeError:
            pass  # shapes or dtypes that do not fit: named below
    return join_batches(batches)
