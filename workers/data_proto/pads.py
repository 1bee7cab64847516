"""Rows that fill a `DataProto` up to a number that divides."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from transferqueue.workers.data_proto.errors import DataProtoError

if TYPE_CHECKING:
    from transferqueue.workers.data_proto.data_proto import DataProto


def pad_dataproto_to_divisor(data: DataProto, size_divisor: int) -> tuple[DataProto, int]:
    """`data` with its first rows repeated at the end, in turn, up to a multiple of `size_divisor`; how many were added.

    A batch that divides already, or has no rows, is returned as it is. Raises `DataProtoError` for another type.
    """
    from transferqueue.workers.data_proto.data_proto import DataProto

    if not isinstance(data, DataProto):
        raise DataProtoError(f"data must be a DataProto, got {type(data).__name__}")
    rows = len(data)
    added = -rows % size_divisor if rows else 0
    if not added:
        return data, 0
    return data.select_idxs(np.concatenate((np.arange(rows), np.arange(added) % rows))), added


def unpad_dataproto(data: DataProto, pad_size: int) -> DataProto:
    """`data` without its last `pad_size` rows."""
    return data[:-pad_size] if pad_size else data
