"""Batch dimensions folded into groups of rows and back: [groups * n, ...] and [groups, n, ...]."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transferqueue.workers.data_proto.errors import DataProtoError

if TYPE_CHECKING:
    from transferqueue.workers.data_proto.data_proto import DataProto


def fold_batch_dim(data: DataProto, new_batch_size: int) -> DataProto:
    """Columns [rows, ...] as [new_batch_size, rows // new_batch_size, ...]; a new object, columns shared.

    Raises `DataProtoError` when the rows do not divide.
    """
    rows = len(data)
    if new_batch_size < 1 or rows % new_batch_size:
        raise DataProtoError(f"{rows} rows cannot be folded into {new_batch_size} groups of equal size")
    group = rows // new_batch_size
    batch = data.batch
    if batch is not None:
        batch = batch.view(new_batch_size, group)
        batch.auto_batch_size_(batch_dims=1)
    columns = {
        name: column.reshape(new_batch_size, group, *column.shape[1:]) for name, column in data.non_tensor_batch.items()
    }
    return type(data)(batch=batch, non_tensor_batch=columns, meta_info=dict(data.meta_info))


def unfold_batch_dim(data: DataProto, batch_dims: int = 2) -> DataProto:
    """The first `batch_dims` dimensions of every column as one; the reverse of `fold_batch_dim`. Columns shared.

    Raises `DataProtoError` for columns that do not have these dimensions in common.
    """
    batch = data.batch
    if batch is not None:
        sizes = {tuple(batch.get(name).shape[:batch_dims]) for name in batch.keys()}
        if len(sizes) > 1 or any(len(size) < batch_dims for size in sizes):
            raise DataProtoError(f"the fields do not have {batch_dims} dimensions in common: {sorted(sizes)}")
        shaped = batch.copy()  # setting the batch size of the caller's own would change the caller's object
        shaped.batch_size = next(iter(sizes), batch.batch_size)
        batch = shaped.reshape(-1)
    columns = {name: column.reshape(-1, *column.shape[batch_dims:]) for name, column in data.non_tensor_batch.items()}
    return type(data)(batch=batch, non_tensor_batch=columns, meta_info=dict(data.meta_info))
