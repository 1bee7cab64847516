"""Handing rows to consumers: what a sampler chooses is marked consumed in one short transaction.

The sampler runs on a snapshot, outside any transaction. Its choice is committed only if every chosen row is still ready
and unconsumed and nobody else changed the task's state meanwhile; else it runs again on a new snapshot, with its old
state. Who lost four times holds the task's lock, so that progress is certain.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from transferqueue.aio import asynchronous
from transferqueue.client.core import as_indexes, check_names, check_partition, refuse_duplicates
from transferqueue.client.row_meta import batch_meta
from transferqueue.client.rows import RowCalls, Status
from transferqueue.errors import StaleMetadataError, TransferTimeoutError, name_some
from transferqueue.metadata import BatchMeta, FieldSchema
from transferqueue.metadata.index_ranges import MAX_ROWS
from transferqueue.samplers.registry import SamplerRun
from transferqueue.waiting import Steps, blocking, deadline, wait_until

_FREE_TRIES = 4
_TASK_LOCK_TIMEOUT_S = 60.0
_FETCH_TIMEOUT_S = 5.0
MODES = ("fetch", "insert", "force_fetch")


class PartitionView:
    """What a sampler may ask about the partition it samples from."""

    def __init__(self, client: RowCalls, partition: str) -> None:
        self._client = client
        self._partition = partition

    def get_custom_meta(self, indexes: Sequence[int]) -> dict[int, dict[str, Any]]:
        """Tags by global index."""
        listed = [int(index) for index in indexes]
        return dict(zip(listed, self._client._tags_of(self._partition, as_indexes(listed)), strict=True))


class ConsumptionCalls(RowCalls):
    """Part of `TransferQueueClient`."""

    @blocking
    def get_meta(
        self,
        data_fields: str | Sequence[str],
        batch_size: int,
        partition_id: str,
        mode: str = "fetch",
        task_name: str | None = None,
        sampling_config: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = _FETCH_TIMEOUT_S,
        polling_mode: bool | None = None,
        partial: bool = False,
        known_fields_only: bool = False,
    ) -> Steps[BatchMeta]:
        """Rows to work on.

        ``fetch``: rows that have all `data_fields` and were not consumed by `task_name`, chosen by the session's
        sampler and marked consumed at once; tags as custom_meta. ``insert``: `batch_size` new rows without data.
        ``force_fetch``: all rows of the partition, whatever their state; production_status says which are ready.

        Args:
            data_fields: names of fields.
            batch_size: number of rows; ignored by ``force_fetch``.
            partition_id: the partition; ``insert`` creates it.
            mode: see above.
            task_name: who consumes; tasks are independent of each other. ``fetch`` needs it.
            sampling_config: passed to the sampler as keyword arguments.
            timeout: seconds that ``fetch`` waits for enough rows; None for ever.
            polling_mode: too few rows give empty metadata at once (default: ``controller.polling_mode``).
            partial: takes fewer rows than `batch_size` rather than wait, as soon as there is one.
            known_fields_only: ``force_fetch`` leaves out fields that no row of the partition has.

        Raises:
            TransferTimeoutError: too few rows within `timeout`; says how many there are.
            PartitionNotFoundError: ``force_fetch`` of an unknown partition.
            ValueError: an unknown mode, a negative size, ``fetch`` without a task.
        """
        store = self._open()
        fields, partition = check_names(data_fields, "data_fields"), check_partition(partition_id)
        if mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(MODES)}; not {mode!r}")
        if mode == "force_fetch":
            return self._all_rows(fields, partition, known_fields_only)
        if not isinstance(batch_size, int) or batch_size < 0:
            raise ValueError(f"batch_size must be an int >= 0, not {batch_size!r}")
        if mode == "insert":
            if batch_size > MAX_ROWS:  # a transaction of that size would hold up every writer of the session
                raise ValueError(f"batch_size is {batch_size}; at most {MAX_ROWS} rows are inserted at once")
            indexes = store.publish(partition, count=batch_size).indexes if batch_size else as_indexes([])
            return batch_meta(self.session, partition, indexes, {name: FieldSchema() for name in fields}, ready=False)
        if not task_name:
            raise ValueError("mode='fetch' needs a task_name: rows are marked consumed for that task")
        task: str = task_name
        config = dict(sampling_config or {})
        at_least = min(1, batch_size) if partial else batch_size
        polling = self._config.controller.polling_mode if polling_mode is None else polling_mode
        ready_rows = 0

        def look() -> BatchMeta | None:
            nonlocal ready_rows
            ready_rows, meta = self._fetch(fields, batch_size, at_least, partition, task, config)
            return meta

        if polling:
            meta = look()
            return meta if meta is not None else batch_meta(self.session, partition, as_indexes([]), {}, ready=False)

        def too_late() -> TransferTimeoutError:
            _, _, ready, _ = store.production(partition, fields)
            consumed = int(ready.all(axis=1).sum()) - ready_rows
            there = f"there are {ready_rows}" + (f" and {consumed} that it has consumed" if consumed > 0 else "")
            if ready_rows and ready_rows >= at_least:
                there += ", of which the sampler made no batch"
            return TransferTimeoutError(
                f"waited {timeout} s for {batch_size} rows of partition {partition!r} that have {name_some(fields)} "
                f"and are not consumed by task {task!r}: {there}"
                f"{self._what_does_not_exist(partition, fields)}. Wait longer (timeout=), take fewer (partial=True), "
                "or poll (polling_mode=True)",
                timeout_s=timeout,
                missing=max(0, batch_size - ready_rows),
            )

        return (yield from wait_until(store, partition, deadline(timeout), look, too_late))

    def _all_rows(self, fields: list[str], partition: str, known_fields_only: bool) -> BatchMeta:
        while True:
            found, indexes, _, known = self._store.production(partition, fields)
            if not found:
                raise self._unknown_partition(partition)
            named = [name for name, there in zip(fields, known, strict=True) if there or not known_fields_only]
            try:
                return self._meta_of_rows(partition, as_indexes(indexes), named)
            except StaleMetadataError:
                continue  # some were cleared between the two looks

    def _fetch(
        self, fields: list[str], batch_size: int, at_least: int, partition: str, task: str, config: dict[str, Any]
    ) -> tuple[int, BatchMeta | None]:
        """(rows that could be had, metadata of the chosen ones or None when there are too few)."""
        tries = 0
        with contextlib.ExitStack() as stack:
            while True:
                snapshot = self._store.task_snapshot(partition, task, fields)
                run = SamplerRun(self._sampler(), snapshot.sampler_state)
                ready = snapshot.ready.tolist()
                repeated = run.has_cached_result(config)
                if len(ready) < at_least and not repeated:
                    return len(ready), None
                sampled, consumed = run.sample(ready, batch_size, PartitionView(self, partition), config)
                if not sampled and batch_size:
                    return len(ready), None
                _check_choice(sampled, consumed, ready, repeated)
                # Described before they are marked: if one was cleared meanwhile, the others are not lost.
                try:
                    meta = self._meta_of_rows(partition, as_indexes(sampled), fields)
                except StaleMetadataError:
                    if repeated:
                        raise
                    continue
                # Of a repeated answer those are consumed already that were handed out before; not those that were kept.
                marks = as_indexes(sorted(set(consumed) & set(ready)) if repeated else consumed)
                if self._store.task_commit(partition, task, snapshot.task_version, fields, marks, run.state()):
                    return len(ready), meta
                tries += 1
                if tries == _FREE_TRIES:
                    stack.enter_context(self._store.lock_task(partition, task, _TASK_LOCK_TIMEOUT_S))

    def get_consumption_status(self, task_name: str, partition_id: str) -> Status:
        """(global indexes, int8 [rows] with 1 where the task consumed the row); zeros for an unknown task,
        ``(None, None)`` for an unknown partition."""
        found, indexes, consumed = self._open().consumption(check_partition(partition_id), task_name)
        if not found:
            return None, None
        return torch.from_numpy(indexes), torch.from_numpy(consumed)

    def check_consumption_status(self, task_name: str, partition_id: str) -> bool:
        """Whether the task consumed all rows of the partition; False for an unknown or empty one."""
        _, status = self.get_consumption_status(task_name, partition_id)
        return status is not None and len(status) > 0 and bool((status == 1).all())

    def reset_consumption(self, partition_id: str, task_name: str | None = None) -> bool:
        """Offers the rows of a partition again, to one task or (None) to all. True, also when there was nothing."""
        store, partition = self._open(), check_partition(partition_id)
        if partition in store.partitions():
            store.task_reset(partition, task_name)
        return True

    async_get_meta = asynchronous(get_meta)
    async_get_consumption_status = asynchronous(get_consumption_status)
    async_check_consumption_status = asynchronous(check_consumption_status)
    async_reset_consumption = asynchronous(reset_consumption)


def _check_choice(sampled: list[int], consumed: list[int], ready: list[int], repeated: bool) -> None:
    refuse_duplicates(sampled, "the sampler chose rows twice")
    if repeated:
        return
    offered = set(ready)
    strangers = [index for index in [*sampled, *consumed] if index not in offered]
    if strangers:
        raise ValueError(f"the sampler chose rows that it was not offered: global indexes {name_some(strangers)}")
