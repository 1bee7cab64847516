"""The rows of all ranks of a process group on each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch.distributed as dist

if TYPE_CHECKING:
    from transferqueue.workers.data_proto.data_proto import DataProto


def all_gather_data_proto(data: DataProto, process_group: dist.ProcessGroup | None = None) -> None:
    """Gives `data`, in place, the rows of all ranks of a group, in the order of the ranks. Every rank calls it.

    Ranks may bring different numbers of rows, ragged columns too. The rows travel pickled, through the memory of the
    host; tensors come back on the device where they were. `meta_info` stays this rank's own.

    Args:
        data: this rank's rows; all ranks have the same columns.
        process_group: None for the default one.

    Raises:
        DataProtoError: ranks brought different columns.
    """
    kind = type(data)
    device = None if data.batch is None else data.batch.device
    mine = kind(
        batch=None if data.batch is None else data.batch.cpu(),
        non_tensor_batch=data.non_tensor_batch,
    )
    pieces: list[Any] = [None] * dist.get_world_size(process_group)
    dist.all_gather_object(pieces, mine, group=process_group)
    joined = kind.concat(pieces)
    data.batch, data.non_tensor_batch = joined.batch, joined.non_tensor_batch
    if device is not None:
        data.to(device)
