"""The rows of all ranks of a process group on each of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist

from transferqueue.workers.data_proto.errors import DataProtoError
from transferqueue.workers.data_proto.serialization import pack_batch, unpack_batch

if TYPE_CHECKING:
    from transferqueue.workers.data_proto.data_proto import DataProto

Batch = TypeVar("Batch", bound="DataProto")


def all_gather_data_proto(data: DataProto, process_group: Any = None) -> None:
    """Puts the rows of all ranks into `data`, in rank order, in place as `torch.distributed.all_gather`.

    `meta_info` stays this rank's. A collective: every rank of the group calls it. Ranks may have different numbers of
    rows, none included. Columns of all dtypes, ragged and nested ones and Python columns go, through the host's memory;
    the tensors are copies, on the device of this rank's own.

    Args:
        data: what this rank has.
        process_group: of `torch.distributed`; None: the default one.

    Raises `TypeError` for what is no `DataProto`, `DataProtoError` where ranks have different columns: on every rank,
    before a tensor is sent.
    """
    gathered = all_gathered(data, process_group)
    data.batch, data.non_tensor_batch = gathered.batch, gathered.non_tensor_batch


def all_gathered(data: Batch, process_group: Any = None) -> Batch:
    """What `all_gather_data_proto` makes of `data`, as a new object with a `meta_info` of its own."""
    from transferqueue.workers.data_proto.data_proto import DataProto

    if not isinstance(data, DataProto):
        raise TypeError(f"all_gather_data_proto takes a DataProto, got {type(data).__name__}")
    arrays: list[Any] = []
    # Arrays that are large enough to matter go as tensors, everything else as pickles in one collective before them.
    device = _device_of_batch(data.batch)
    form = _without_arrays(pack_batch(data.batch if device is None else data.batch.to("cpu")), arrays)
    names = None if data.batch is None else sorted(map(str, data.batch.keys()))
    mine = (names, form, [len(array) for array in arrays], data.non_tensor_batch)
    told: list[Any] = [None] * dist.get_world_size(process_group)
    dist.all_gather_object(told, mine, group=process_group)
    _check_same_fields([(one[0], sorted(one[3])) for one in told])
    data_of_rank = _gathered_bytes(arrays, [one[2] for one in told], process_group)
    joined: DataProto = DataProto.concat(
        [
            DataProto(unpack_batch(_with_arrays(form, received)), columns)
            for (_, form, _, columns), received in zip(told, data_of_rank, strict=True)
        ]
    )
    if device is not None:
        joined.to(device)
    return data._like(joined.batch, joined.non_tensor_batch)


class _Array:
    """Stands in a packed batch for the next array."""


def _without_arrays(packed: Any, arrays: list[Any]) -> Any:
    if isinstance(packed, np.ndarray) and packed.dtype == np.uint8 and packed.ndim == 1:
        arrays.append(packed)
        return _Array()
    if isinstance(packed, tuple):
        return tuple(_without_arrays(one, arrays) for one in packed)
    if type(packed) is dict:
        return {name: _without_arrays(one, arrays) for name, one in packed.items()}
    return packed


def _with_arrays(form: Any, arrays: list[Any]) -> Any:
    if isinstance(form, _Array):
        return arrays.pop(0)
    if isinstance(form, tuple):
        return tuple(_with_arrays(one, arrays) for one in form)
    if type(form) is dict:
        return {name: _with_arrays(one, arrays) for name, one in form.items()}
    return form


def _check_same_fields(found: Sequence[tuple[list[str] | None, list[str]]]) -> None:
    for rank, one in enumerate(found):
        if one != found[0]:
            raise DataProtoError(
                f"all_gather: rank {rank} has the tensors {one[0]} and the Python columns {one[1]}, rank 0 "
                f"{found[0][0]} and {found[0][1]}; every rank needs the same, one without rows too"
            )


def _gathered_bytes(arrays: Sequence[Any], sizes: Sequence[Sequence[int]], group: Any) -> list[list[Any]]:
    """The arrays of every rank. All of a rank go as one row of bytes, which every backend takes whatever the dtypes
    are, filled up to the longest."""
    longest = max(sum(one) for one in sizes)
    if not longest:
        return [[np.empty(0, np.uint8) for _ in one] for one in sizes]
    device = _device_of(group)
    mine = torch.zeros(longest, dtype=torch.uint8)
    start = 0
    for array in arrays:
        mine.numpy()[start : start + len(array)] = array
        start += len(array)
    rows = [torch.empty(longest, dtype=torch.uint8, device=device) for _ in sizes]
    dist.all_gather(rows, mine.to(device), group=group)
    return [np.split(row.cpu().numpy()[: sum(one)], np.cumsum(one)[:-1]) for row, one in zip(rows, sizes, strict=True)]


def _device_of_batch(batch: Any) -> torch.device | None:
    """Where its tensors are; None: on the CPU, or there are none. Other ranks number their devices by themselves."""
    tensors = [] if batch is None else [leaf for leaf in batch.values(True, True) if isinstance(leaf, torch.Tensor)]
    return next((tensor.device for tensor in tensors if tensor.device.type != "cpu"), None)


def _device_of(group: Any) -> torch.device:
    """Where tensors have to be for the group: the CPU where it takes them there, else this process's accelerator."""
    kinds = [part.partition(":")[0] for part in dist.get_backend_config(group).split(",")]
    if "cpu" in kinds:
        return torch.device("cpu")
    return torch.device(kinds[0], getattr(torch, kinds[0]).current_device())
