"""A batch that is passed by value: tensors, Python columns and batch-wide values."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from typing import Any, TypeVar

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase
from torch.utils.data import DataLoader, Dataset

from transferqueue.workers.data_proto import conversions
from transferqueue.workers.data_proto.description import describe, nbytes
from transferqueue.workers.data_proto.errors import DataProtoError
from transferqueue.workers.data_proto.fields import FieldMethods
from transferqueue.workers.data_proto.gathering import all_gathered
from transferqueue.workers.data_proto.item import object_array
from transferqueue.workers.data_proto.rows import RowMethods
from transferqueue.workers.data_proto.serialization import pack_batch, unpack_batch

Self = TypeVar("Self", bound="DataProto")


class DataProto(RowMethods, FieldMethods):
    """A batch of rows that all methods of a training loop take and give.

    Args:
        batch: TensorDict of batch size [rows], or None.
        non_tensor_batch: name -> array [rows, ...], usually of objects (strings, lists, dicts).
        meta_info: values of the whole batch; kept, not copied.
        auto_padding: fill the batch up where a group spreads it over a number of ranks that does not divide its rows;
            the pads are taken out of the result.

    Methods return new objects that share tensors with this one where no rows are copied, with a `meta_info` of their
    own; `pop`, `rename`, `reorder`, `union`, `padding` and `to` change this object.

    Raises `DataProtoError` (also a ValueError and an AssertionError) for parts that do not fit each other.
    """

    @classmethod
    def from_single_dict(
        cls: type[Self], data: Mapping[str, Any], meta_info: dict[str, Any] | None = None, auto_padding: bool = False
    ) -> Self:
        """Of tensors and arrays in one dict. `ValueError` for a value of another type."""
        for name, value in data.items():
            if not isinstance(value, (torch.Tensor, np.ndarray)):
                raise ValueError(f"Unsupported type in data {type(value)} of {name!r}: give a tensor or an array")
        return cls.from_dict(
            tensors={name: value for name, value in data.items() if isinstance(value, torch.Tensor)},
            non_tensors={name: value for name, value in data.items() if not isinstance(value, torch.Tensor)},
            meta_info=meta_info,
            auto_padding=auto_padding,
        )

    @classmethod
    def from_dict(
        cls: type[Self],
        tensors: Mapping[str, torch.Tensor] | None = None,
        non_tensors: Mapping[str, Any] | None = None,
        meta_info: dict[str, Any] | None = None,
        num_batch_dims: int = 1,
        auto_padding: bool = False,
    ) -> Self:
        """Of tensors [rows, ...] and Python columns; the tensors are shared.

        Columns that are no arrays become what ``np.array(column, dtype=object)`` makes of them, which is a 2-D array
        for lists that are equally long. Give an array of lists where that must not depend on the data.

        Raises `DataProtoError` for tensors or columns with different numbers of rows, or more batch dimensions than 1.
        """
        if num_batch_dims != 1:
            raise DataProtoError(f"only support num_batch_dims=1, got {num_batch_dims}")
        if non_tensors is not None and not isinstance(non_tensors, Mapping):
            raise DataProtoError(f"non_tensors is a dict of columns, got {type(non_tensors).__name__}")
        tensors = tensors or {}
        sizes = {name: tuple(tensor.shape[:1]) for name, tensor in tensors.items()}
        batch_size = next(iter(sizes.values()), ())
        if any(size != batch_size or not size for size in sizes.values()):
            raise DataProtoError(
                "Not all the tensor in tensors have the same batch size: "
                + ", ".join(f"{name} has {size[0] if size else 'no rows'}" for name, size in sizes.items())
            )
        return cls(
            batch=TensorDict(dict(tensors), batch_size=batch_size) if tensors else None,
            non_tensor_batch={
                name: column if isinstance(column, np.ndarray) else object_array(column)
                for name, column in (non_tensors or {}).items()
            },
            meta_info=meta_info,
            auto_padding=auto_padding,
        )

    @classmethod
    def from_tensordict(
        cls: type[Self],
        tensor_dict: TensorDictBase,
        meta_info: dict[str, Any] | None = None,
        num_batch_dims: int = 1,
    ) -> Self:
        """Of a TensorDict: tensors are shared, stacks of Python values become arrays of objects, `NonTensorData`
        entries batch-wide values beside those of `meta_info`."""
        if num_batch_dims != 1:
            raise DataProtoError(f"only support num_batch_dims=1, got {num_batch_dims}")
        batch, columns, info = conversions.parts_of(tensor_dict)
        return cls(batch=batch, non_tensor_batch=columns, meta_info={**(meta_info or {}), **info})

    def to_tensordict(self) -> TensorDict:
        """As a TensorDict of batch size [rows]: tensors shared, Python columns as stacks of values, batch-wide values
        as `NonTensorData`.

        Raises `DataProtoError` for a name that stands in two parts.
        """
        return conversions.tensordict_of(self.batch, self.non_tensor_batch, self.meta_info, len(self))

    def unfold_column_chunks(self: Self, n_split: int, split_keys: Sequence[str] | None = None) -> Self:
        """Columns in `split_keys` [rows, n, ...] as [rows * n_split, n / n_split, ...]; of the others every row
        `n_split` times.

        Raises `DataProtoError` for a second dimension that does not divide.
        """
        split = set(split_keys or ())
        repeated = self.repeat(n_split)

        def unfolded(name: str, column: Any, otherwise: Any) -> Any:
            if name not in split:
                return otherwise
            if len(column.shape) < 2 or column.shape[1] % n_split:
                raise DataProtoError(
                    f"{name!r} of shape {tuple(column.shape)} has no second dimension of n * {n_split}"
                )
            return column.reshape(len(column) * n_split, column.shape[1] // n_split, *column.shape[2:])

        batch = repeated.batch
        if batch is not None:
            for name in list(batch.keys()):
                batch.set(name, unfolded(name, self.batch.get(name), batch.get(name)))
        columns = {
            name: unfolded(name, self.non_tensor_batch[name], column)
            for name, column in repeated.non_tensor_batch.items()
        }
        return self._like(batch, columns)

    def make_iterator(
        self: Self,
        mini_batch_size: int,
        epochs: int,
        seed: int | None = None,
        dataloader_kwargs: Mapping[str, Any] | None = None,
    ) -> Iterator[Self]:
        """`epochs` passes over the rows in mini-batches, as a torch `DataLoader` with these arguments makes them (for
        instance ``{"shuffle": True}``, seeded by `seed`); each has this object's `meta_info`.

        Raises `DataProtoError` when the rows do not divide into mini-batches.
        """
        if mini_batch_size < 1 or len(self) % mini_batch_size:
            raise DataProtoError(f"{len(self)} % {mini_batch_size} != 0: the rows do not divide into mini-batches")
        generator = None
        if seed is not None:
            generator = torch.Generator()
            generator.manual_seed(seed)
        loader: DataLoader[Self] = DataLoader(
            dataset=_RowsOf(self),
            batch_size=mini_batch_size,
            collate_fn=_as_it_is,
            generator=generator,
            **(dataloader_kwargs or {}),
        )
        return (batch for _ in range(epochs) for batch in loader)

    def all_gather(self: Self, group: Any = None) -> Self:
        """The rows of all ranks of a process group, in rank order, as a new object; see `all_gather_data_proto`."""
        return all_gathered(self, group)

    def save_to_disk(self, filepath: str | PathLike[str]) -> None:
        """Writes this object to a file, as a pickle."""
        with open(filepath, "wb") as file:
            pickle.dump(self, file, protocol=pickle.HIGHEST_PROTOCOL)

    @staticmethod
    def load_from_disk(filepath: str | PathLike[str]) -> Any:
        """What `save_to_disk` wrote. A pickle runs code: load only files that you trust."""
        with open(filepath, "rb") as file:
            return pickle.load(file)

    def print_size(self, prefix: str = "") -> None:
        """Prints how many GiB the tensors and the arrays take."""
        tensors, arrays = (size / 1024**3 for size in nbytes(self))
        start = f"{prefix}, " if prefix else ""
        print(f"{start}Size of tensordict: {tensors} GB, size of non_tensor_batch: {arrays} GB")

    def get_data_info(self) -> str:
        """What is in each part, with shapes, dtypes and types, as text."""
        return describe(self)

    def __getstate__(self) -> tuple[Any, dict[str, Any], dict[str, Any]]:
        # Of a slice only its own bytes travel, and tensors as buffers that a serializer may take without copying them.
        return pack_batch(self.batch), self.non_tensor_batch, self.meta_info

    def __setstate__(self, state: tuple[Any, dict[str, Any], dict[str, Any]]) -> None:
        packed, self.non_tensor_batch, self.meta_info = state
        self.batch = unpack_batch(packed)


class _RowsOf(Dataset[Any]):
    """Mini-batches of a `DataProto` for a loader, which asks for all rows of one at once."""

    def __init__(self, data: DataProto) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, index: int) -> Any:
        return self._data[[index]]

    def __getitems__(self, indexes: list[int]) -> Any:
        return self._data.select_idxs(indexes)


def _as_it_is(batch: Any) -> Any:
    return batch
