"""Columns of two batches of the same rows, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tensordict import TensorDictBase

from transferqueue.workers.data_proto.equality import columns_equal
from transferqueue.workers.data_proto.errors import DataProtoError


def union_tensor_dict(tensor_dict1: TensorDictBase, tensor_dict2: TensorDictBase) -> TensorDictBase:
    """Adds the fields of the second to the first, in place, and returns it. No copy.

    Raises `DataProtoError` for different batch sizes or a field of both whose values differ; nothing is changed then.
    """
    if tensor_dict1.batch_size != tensor_dict2.batch_size:
        raise DataProtoError(
            f"union needs the same rows: the batch sizes are {list(tensor_dict1.batch_size)} and "
            f"{list(tensor_dict2.batch_size)}",
            expected=tuple(tensor_dict1.batch_size),
            found=tuple(tensor_dict2.batch_size),
        )
    mine = {name: tensor_dict1.get(name) for name in tensor_dict1.keys()}
    theirs = {name: tensor_dict2.get(name) for name in tensor_dict2.keys()}
    check_common(mine, theirs, "tensor_dict1 and tensor_dict2")
    for name, column in theirs.items():
        if name not in mine:
            tensor_dict1.set(name, column)
    return tensor_dict1


def union_numpy_dict(tensor_dict1: dict[str, Any], tensor_dict2: Mapping[str, Any]) -> dict[str, Any]:
    """As `union_tensor_dict` for dicts of arrays; NaN equals NaN, object arrays are compared at any depth."""
    check_common(tensor_dict1, tensor_dict2, "tensor_dict1 and tensor_dict2")
    tensor_dict1.update(tensor_dict2)
    return tensor_dict1


def check_common(mine: Mapping[str, Any], theirs: Mapping[str, Any], where: str) -> None:
    """`DataProtoError` when a name of both has different values."""
    for name, value in theirs.items():
        if name in mine and not columns_equal(mine[name], value):
            raise DataProtoError(
                f"`{name}` in {where} are not the same object. Give them equal values, or one another name",
                fields=(name,),
            )
