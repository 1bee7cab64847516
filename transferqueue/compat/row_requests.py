"""Rows by global index, as the surface has them: each call is the native one with other options."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase

from transferqueue.aio import asynchronous
from transferqueue.client.row_choice import choose_rows
from transferqueue.codec import JAGGED
from transferqueue.compat.client_base import ClientBase
from transferqueue.compat.environment import fetch_timeout_s
from transferqueue.compat.transfer_queue.errors import StorageKeyNotFoundError
from transferqueue.compat.transfer_queue.metadata import BatchMeta
from transferqueue.errors import (
    FieldNotReadyError,
    PartitionNotFoundError,
    StaleMetadataError,
    TransferTimeoutError,
)
from transferqueue.metadata import BatchMeta as NativeBatchMeta
from transferqueue.waiting import Steps, blocking, steps_of

DataParser = Callable[[dict[str, Any]], Mapping[str, Any]]
Status = tuple[torch.Tensor | None, torch.Tensor | None]


class RowRequests(ClientBase):
    """Part of the compatible `TransferQueueClient`."""

    @blocking
    def put(
        self,
        data: TensorDictBase,
        metadata: NativeBatchMeta | None = None,
        partition_id: str | None = None,
        data_parser: DataParser | None = None,
    ) -> Steps[NativeBatchMeta]:
        """Stores a TensorDict on the rows of `metadata`, or on new rows of `partition_id`; one copy.

        The rows get ``metadata.custom_meta`` as tags. `metadata` gets the fields and is ready afterwards; it is
        returned.

        Raises:
            ValueError: neither metadata nor partition_id, empty metadata, another number of rows.
            RuntimeError: rows that were cleared, no room, a data_parser that changes fields or counts.
        """
        if metadata is None:
            if partition_id is None:
                raise ValueError("partition_id must be provided if metadata is not given")
            with self._request("put", ValueError, TypeError):
                made = yield from steps_of(self._native.put)(data, None, partition_id, data_parser, lists_are_rows=True)
            return BatchMeta.of(made)
        if not metadata.size:
            raise ValueError("metadata cannot be none or empty")
        with self._request("put", ValueError, TypeError):
            yield from self._put_on_rows(data, metadata, data_parser)
        # As the surface has it: what was put counts, not which other fields the metadata named before.
        metadata.add_schema({}, set_all_ready=True)
        return metadata

    def _put_on_rows(self, data: Any, metadata: NativeBatchMeta, data_parser: DataParser | None) -> Steps[None]:
        put = steps_of(self._native.put)
        if len(metadata.partition_names) == 1:
            tags = metadata.custom_meta
            yield from put(data, metadata, None, data_parser, tags=tags if any(tags) else None, lists_are_rows=True)
            return
        # A put is atomic within one partition; each gets one of its own.
        partition_ids = np.array(metadata.partition_ids)
        for partition in metadata.partition_names:
            mine = np.flatnonzero(partition_ids == partition)
            piece: Any = TensorDict(choose_rows(data, mine), batch_size=[len(mine)])
            yield from self._put_on_rows(piece, metadata.select_samples(mine), data_parser)
        metadata.add_fields(data)

    @blocking
    def get_data(self, metadata: NativeBatchMeta) -> Steps[TensorDict]:
        """The rows of `metadata`, in its order; tensors with a shape come back jagged. Writing to them reaches nobody.

        Raises:
            StorageKeyNotFoundError: a row was cleared, or does not have a field of the metadata.
        """
        if not metadata or not metadata.field_names:
            return TensorDict({}, batch_size=[0])
        with self._request("get_data", StorageKeyNotFoundError):
            try:
                return (yield from steps_of(self._native.get_data)(metadata, layout=JAGGED))
            except (StaleMetadataError, FieldNotReadyError) as error:
                raise StorageKeyNotFoundError(str(error)) from error

    @blocking
    def get_meta(
        self,
        data_fields: Sequence[str],
        batch_size: int,
        partition_id: str,
        mode: str = "fetch",
        task_name: str | None = None,
        sampling_config: Mapping[str, Any] | None = None,
    ) -> Steps[BatchMeta]:
        """Rows to work on; see the native `get_meta`.

        Raises:
            RuntimeError: holds ``TimeoutError: Timeout while waiting for sufficient data`` when too few rows came (not
                in polling mode, which returns empty metadata), ``ValueError: Partition X not found`` for
                ``force_fetch``, or what the sampler raised.
        """
        with self._request("get_meta"):
            try:
                meta = yield from steps_of(self._native.get_meta)(
                    data_fields,
                    operator.index(batch_size),
                    partition_id,
                    mode,
                    task_name,
                    sampling_config,
                    timeout=fetch_timeout_s(),
                    known_fields_only=True,
                )
            except PartitionNotFoundError as error:
                raise ValueError(f"Partition {partition_id} not found") from error
            except TransferTimeoutError as error:
                raise TimeoutError(
                    f"Timeout while waiting for sufficient data for task {task_name}. Required: {batch_size}; {error}"
                ) from error
        return BatchMeta.of(meta)

    def set_custom_meta(self, metadata: NativeBatchMeta) -> None:
        """Merges ``metadata.custom_meta`` into the tags of its rows."""
        with self._request("set_custom_meta"):
            self._native.set_custom_meta(metadata)

    def clear_samples(self, metadata: NativeBatchMeta) -> None:
        """Removes the rows; those that are gone already are ignored."""
        with self._request("clear_samples"):
            self._native.clear_samples(metadata)

    def clear_partition(self, partition_id: str) -> None:
        """Removes a partition with all rows; an unknown one is no error."""
        with self._request("clear_partition"):
            self._native.clear_partition(partition_id)

    def get_production_status(self, data_fields: str | Sequence[str], partition_id: str) -> Status:
        """(global indexes, int8 [rows, fields]); ``(None, None)`` for an unknown partition or field."""
        with self._request("get_production_status"):
            return self._native.get_production_status(data_fields, partition_id)

    def get_consumption_status(self, task_name: str, partition_id: str) -> Status:
        """(global indexes, int8 [rows]), zeros for an unknown task; ``(None, None)`` for an unknown partition."""
        with self._request("get_consumption_status"):
            return self._native.get_consumption_status(task_name, partition_id)

    def check_production_status(self, data_fields: str | Sequence[str], partition_id: str) -> bool:
        """Whether all rows have all fields; False for an unknown partition or field."""
        with self._request("check_production_status"):
            return self._native.check_production_status(data_fields, partition_id)

    def check_consumption_status(self, task_name: str, partition_id: str) -> bool:
        """Whether the task consumed all rows; False for an unknown or empty partition."""
        with self._request("check_consumption_status"):
            return self._native.check_consumption_status(task_name, partition_id)

    def reset_consumption(self, partition_id: str, task_name: str | None = None) -> bool:
        """Offers the rows again, to one task or all. True, also when there was nothing."""
        with self._request("reset_consumption"):
            return self._native.reset_consumption(partition_id, task_name)

    def get_partition_list(self) -> list[str]:
        """Names of the partitions, empty ones included."""
        with self._request("get_partition_list"):
            return self._native.get_partition_list()

    async_put = asynchronous(put)
    async_get_data = asynchronous(get_data)
    async_get_meta = asynchronous(get_meta)
    async_set_custom_meta = asynchronous(set_custom_meta)
    async_clear_samples = asynchronous(clear_samples)
    async_clear_partition = asynchronous(clear_partition)
    async_get_production_status = asynchronous(get_production_status)
    async_get_consumption_status = asynchronous(get_consumption_status)
    async_check_production_status = asynchronous(check_production_status)
    async_check_consumption_status = asynchronous(check_consumption_status)
    async_reset_consumption = asynchronous(reset_consumption)
    async_get_partition_list = asynchronous(get_partition_list)
