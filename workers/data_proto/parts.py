"""What a `DataProto` consists of."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from tensordict import TensorDictBase

from transferqueue.workers.data_proto.errors import DataProtoError
from transferqueue.workers.padding_config import DataProtoConfig

Part = TypeVar("Part", bound="Parts")


class Parts:
    """The three parts of a batch, and whether they fit each other."""

    batch: Any  # TensorDictBase | None, which would make every ``data.batch["x"]`` of a program a type error
    non_tensor_batch: dict[str, Any]
    meta_info: dict[str, Any]

    def __init__(
        self,
        batch: TensorDictBase | None = None,
        non_tensor_batch: dict[str, Any] | None = None,
        meta_info: dict[str, Any] | None = None,
        auto_padding: bool = False,
    ) -> None:
        self.batch = batch
        self.non_tensor_batch = {} if non_tensor_batch is None else non_tensor_batch
        self.meta_info = {} if meta_info is None else meta_info
        if auto_padding:  # the dict is the caller's
            self.meta_info = {**self.meta_info, DataProtoConfig.auto_padding_key: True}
        self.check_consistency()

    def __len__(self) -> int:
        if self.batch is not None:
            return int(self.batch.batch_size[0])
        return next((len(column) for column in self.non_tensor_batch.values()), 0)

    def check_consistency(self) -> None:
        """Raises `DataProtoError` unless `batch` has one batch dimension and every entry of `non_tensor_batch` is an
        array with as many rows."""
        if self.batch is not None and len(self.batch.batch_size) != 1:
            raise DataProtoError(
                f"only support num_batch_dims=1: the TensorDict has the batch size {list(self.batch.batch_size)}",
                found=tuple(self.batch.batch_size),
            )
        for name, column in self.non_tensor_batch.items():
            if not isinstance(column, np.ndarray):
                raise DataProtoError(
                    f"non_tensor_batch holds arrays with one value per row; {name!r} is a {type(column).__name__}: "
                    "give np.array(values, dtype=object), or from_dict(non_tensors=...), which makes one",
                    fields=(name,),
                )
            if column.ndim == 0 or len(column) != len(self):
                found = len(column) if column.ndim else "no"
                raise DataProtoError(
                    f"{name!r} in non_tensor_batch has {found} rows, the batch {len(self)}",
                    fields=(name,),
                    expected=len(self),
                    found=found,
                )

    def __repr__(self) -> str:
        fields = [] if self.batch is None else sorted(map(str, self.batch.keys()))
        return (
            f"{type(self).__name__}(rows={len(self)}, batch={fields}, "
            f"non_tensor_batch={sorted(self.non_tensor_batch)}, meta_info={sorted(map(str, self.meta_info))})"
        )

    def _like(
        self: Part, batch: Any, non_tensor_batch: dict[str, Any], meta_info: dict[str, Any] | None = None
    ) -> Part:
        """Other rows with the values of the whole batch: a dict of their own, the values shared."""
        info = dict(self.meta_info if meta_info is None else meta_info)
        return type(self)(batch=batch, non_tensor_batch=non_tensor_batch, meta_info=info)
