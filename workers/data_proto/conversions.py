"""The parts of a `DataProto` as one TensorDict and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tensordict import NonTensorData, NonTensorStack, TensorDict, TensorDictBase
from tensordict.tensorclass import is_non_tensor

from transferqueue.codec import new_batch
from transferqueue.workers.data_proto.errors import DataProtoError
from transferqueue.workers.data_proto.item import column_of_objects


def parts_of(batch: TensorDictBase) -> tuple[TensorDict | None, dict[str, Any], dict[str, Any]]:
    """(fields with tensors, columns of Python values, batch-wide values) of a TensorDict; tensors are shared.

    The first is None for a batch that has no tensors but columns.
    """
    if len(batch.batch_size) != 1:
        raise DataProtoError(f"only support num_batch_dims=1: the TensorDict has batch size {list(batch.batch_size)}")
    fields: dict[str, Any] = {}
    columns: dict[str, Any] = {}
    info: dict[str, Any] = {}
    for name in batch.keys():
        entry = batch.get(name)
        if isinstance(entry, NonTensorStack):
            columns[name] = column_of_objects(entry.tolist())
        elif is_non_tensor(entry):
            info[name] = entry.data
        else:
            fields[name] = entry
    rows = int(batch.batch_size[0])
    made: TensorDict | None = new_batch(fields, rows) if fields or not columns else None
    return made, columns, info


def tensordict_of(
    batch: TensorDictBase | None, columns: Mapping[str, Any], info: Mapping[str, Any], rows: int
) -> TensorDict:
    """One TensorDict of the parts. `DataProtoError` for a name that two parts have."""
    entries: dict[str, Any] = {} if batch is None else {name: batch.get(name) for name in batch.keys()}
    for where, part in (("non_tensor_batch", columns), ("meta_info", info)):
        common = sorted(set(entries) & set(part))
        if common:
            raise DataProtoError(f"names {common} of {where} are those of other entries", fields=tuple(common))
        if part is columns:
            entries.update({name: _stack_of(column) for name, column in columns.items()})
    entries.update({name: NonTensorData(value, batch_size=[rows]) for name, value in info.items()})
    made: TensorDict = new_batch(entries, rows)
    return made


def _stack_of(column: Any) -> Any:
    """A column as tensordict holds it: one value per row; a list where an array of objects has more dimensions."""
    values = column.tolist() if column.dtype == object else list(column)
    if not values:
        return NonTensorStack(NonTensorData(None))[:0]
    return NonTensorStack(*(NonTensorData(value) for value in values))
