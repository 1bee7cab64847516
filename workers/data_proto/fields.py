"""The columns of a `DataProto`: choosing, taking out, renaming, uniting them."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from tensordict import TensorDict

from transferqueue.workers.data_proto.errors import DataProtoError, DataProtoKeyError
from transferqueue.workers.data_proto.parts import Parts
from transferqueue.workers.data_proto.unions import check_common, union_tensor_dict

Self = TypeVar("Self", bound="FieldMethods")


class FieldMethods(Parts):
    """Part of `DataProto`."""

    def select(
        self: Self,
        batch_keys: Iterable[str] | None = None,
        non_tensor_batch_keys: Iterable[str] | None = None,
        meta_info_keys: Iterable[str] | None = None,
        deepcopy: bool = False,
    ) -> Self:
        """A new object with these entries of each part, all of a part for None. Tensors are shared; `deepcopy` copies
        the Python columns and batch-wide values.

        Raises `DataProtoKeyError` for a field of `batch` that is not there; unknown names of the others are left out.
        """
        batch = self.batch
        if batch_keys is not None:
            names = list(batch_keys)
            _require(names, {} if batch is None else batch.keys(), "batch")
            batch = None if batch is None else batch.select(*names)
        columns = _chosen(self.non_tensor_batch, non_tensor_batch_keys)
        info = _chosen(self.meta_info, meta_info_keys)
        if deepcopy:
            columns, info = copy.deepcopy(columns), copy.deepcopy(info)
        return self._like(batch, columns, info)

    def pop(
        self: Self,
        batch_keys: Iterable[str] | None = None,
        non_tensor_batch_keys: Iterable[str] | None = None,
        meta_info_keys: Iterable[str] | None = None,
    ) -> Self:
        """Takes these entries out of this object, none of a part for None, and returns an object of them.

        Raises `DataProtoKeyError` for a name that is not there; nothing is taken out then.
        """
        names, column_names, info_names = (
            list(keys or ()) for keys in (batch_keys, non_tensor_batch_keys, meta_info_keys)
        )
        _require(names, {} if self.batch is None else self.batch.keys(), "batch")
        _require(column_names, self.non_tensor_batch, "non_tensor_batch")
        _require(info_names, self.meta_info, "meta_info")
        batch = None
        if self.batch is not None and names:
            batch = self.batch.select(*names)
            for name in names:
                self.batch.pop(name)
        return self._like(
            batch,
            {name: self.non_tensor_batch.pop(name) for name in column_names},
            {name: self.meta_info.pop(name) for name in info_names},
        )

    def rename(self: Self, old_keys: str | list[str], new_keys: str | list[str]) -> Self:
        """Renames fields of `batch`, in place; returns this object.

        Raises `ValueError` for lists of different length, `DataProtoError` for a field that is not there or a name
        that is taken.
        """
        old, new = _names(old_keys), _names(new_keys)
        if len(old) != len(new):
            raise ValueError(f"new_keys and old_keys must have the same length, but got {len(new)} and {len(old)}")
        batch = self.batch if self.batch is not None else TensorDict({}, [0])
        present = list(batch.keys())
        _require(old, present, "batch")
        left = set(present) - set(old)
        if len(set(new)) != len(new) or left & set(new):
            raise DataProtoError(f"rename: the names {new} are not free; the other fields are {sorted(left)}")
        columns = [batch.pop(name) for name in old]
        for name, column in zip(new, columns, strict=True):
            batch.set(name, column)
        return self

    def union(self: Self, other: Any) -> Self:
        """Adds the columns and batch-wide values of another batch of the same rows, in place; returns this object.

        Raises `DataProtoError` for other batch sizes or a name of both whose values differ; nothing is changed then.
        """
        check_common(self.non_tensor_batch, other.non_tensor_batch, "tensor_dict1 and tensor_dict2")
        check_common(self.meta_info, other.meta_info, "meta_dict1 and meta_dict2")
        if len(self) != len(other) and (self.batch is None or other.batch is None):
            raise DataProtoError(f"union needs the same rows: {len(self)} and {len(other)}")
        if self.batch is None:
            self.batch = other.batch
        elif other.batch is not None:
            self.batch = union_tensor_dict(self.batch, other.batch)
        self.non_tensor_batch.update(other.non_tensor_batch)
        self.meta_info.update(other.meta_info)
        return self

    def to(self: Self, device: Any) -> Self:
        """Moves the tensors to a device, in place; returns this object."""
        if self.batch is not None:
            self.batch = self.batch.to(device)
        return self


def _chosen(entries: Mapping[str, Any], names: Iterable[str] | None) -> dict[str, Any]:
    wanted = None if names is None else set(names)
    return {name: value for name, value in entries.items() if wanted is None or name in wanted}


def _names(keys: Any) -> list[str]:
    if isinstance(keys, str):
        return [keys]
    if isinstance(keys, list):
        return keys
    raise TypeError(f"keys must be a list or a string, but got {type(keys)}")


def _require(names: list[str], present: Any, part: str) -> None:
    missing = [name for name in names if name not in present]
    if missing:
        raise DataProtoKeyError(
            f"{part} has no {', '.join(map(repr, missing))}; it has {sorted(map(str, present))}", fields=tuple(missing)
        )
