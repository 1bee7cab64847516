"""Rows as a batch of a trainer's own type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tensordict import NonTensorData, TensorDict

from transferqueue.aio import asynchronous
from transferqueue.batch_types import BatchType, is_batch_type
from transferqueue.client.checkpointing import CheckpointCalls
from transferqueue.errors import SchemaMismatchError
from transferqueue.metadata import BatchMeta, KVBatchMeta
from transferqueue.waiting import Steps, blocking, steps_of


class TypedReadCalls(CheckpointCalls):
    """Part of `TransferQueueClient`."""

    @blocking
    def get_as(
        self,
        batch_type: type[BatchType],
        metadata: BatchMeta | KVBatchMeta,
        *,
        fields: str | Sequence[str] | None = None,
        mode: str | None = None,
        timeout: float | None = None,
        device: str | torch.device | None = None,
    ) -> Steps[BatchType]:
        """The rows of `metadata` as a `DataProto`, or another batch type with ``from_tensordict`` and
        ``to_tensordict``; extra_info becomes its values of the whole batch (`meta_info`). Tensors are views, as in
        `get_data`, whose further arguments and errors these are.

        Raises:
            TypeError: `batch_type` is no such class.
            SchemaMismatchError: an entry of extra_info has the name of a field.
        """
        if not is_batch_type(batch_type):
            raise TypeError(f"{batch_type!r} has no from_tensordict and to_tensordict; get_data gives a TensorDict")
        options: dict[str, Any] = {"mode": mode, "timeout": timeout, "device": device}
        batch: TensorDict
        if isinstance(metadata, KVBatchMeta):
            batch = yield from steps_of(self.kv_batch_get_by_meta)(metadata, fields, **options)
        else:
            batch = yield from steps_of(self.get_data)(metadata, fields=fields, **options)
        for key, value in metadata.extra_info.items():
            if key in batch.keys():
                raise SchemaMismatchError(f"extra_info entry {key!r} has the name of a field", fields=(str(key),))
            entry: Any = NonTensorData(value, batch_size=batch.batch_size)
            batch.set(key, entry)
        made: BatchType = batch_type.from_tensordict(batch)
        return made

    async_get_as = asynchronous(get_as)
