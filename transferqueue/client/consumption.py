"""Handing rows to consumers at once: what the sampler chooses is marked consumed in one short transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from transferqueue.aio import asynchronous
from transferqueue.client.arguments import check_options, check_task
from transferqueue.client.choosing import Wanted, Way
from transferqueue.client.claims import ClaimCalls
from transferqueue.client.core import Indexes, as_indexes, check_names, check_partition
from transferqueue.client.row_meta import batch_meta
from transferqueue.client.rows import Status
from transferqueue.errors import StaleMetadataError, TransferTimeoutError, name_some
from transferqueue.metadata import BatchMeta, FieldSchema
from transferqueue.metadata.index_ranges import MAX_ROWS
from transferqueue.waiting import Steps, blocking, deadline, lock_timeout, wait_until

if TYPE_CHECKING:
    from transferqueue._native import Store, TaskSnapshot

_FETCH_TIMEOUT_S = 5.0
MODES = ("fetch", "insert", "force_fetch")


class _Consuming(Way[bool]):
    def __init__(self, store: Store, until_s: float | None) -> None:
        self._store = store
        self.until_s = until_s

    def take(self, wanted: Wanted, snapshot: TaskSnapshot, rows: Indexes, state: bytes) -> bool | None:
        limit_s = lock_timeout(self.until_s)
        version = snapshot.task_version
        return (
            self._store.task_commit(
                wanted.partition, wanted.task, version, wanted.fields, rows, state, lock_timeout_s=limit_s
            )
            or None
        )

    def repeat(self, snapshot: TaskSnapshot, sampled: list[int], consumed: list[int]) -> list[int] | None:
        if set(sampled) & set(snapshot.claimed.tolist()):
            return None  # somebody else works on them
        # Those are consumed already that were handed out before; not those that the sampler kept.
        return sorted(set(consumed) & set(snapshot.ready.tolist()))


class ConsumptionCalls(ClaimCalls):
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
            done = (yield from self._named(timeout, partition, count=batch_size)) if batch_size else None
            indexes = as_indexes([]) if done is None else done.indexes
            return batch_meta(self.session, partition, indexes, {name: FieldSchema() for name in fields}, ready=False)
        if task_name is None or (isinstance(task_name, str) and not task_name):
            raise ValueError("mode='fetch' needs a task_name: rows are marked consumed for that task")
        task_name, config = check_task(task_name), check_options(sampling_config, "sampling_config")
        wanted = Wanted(partition, task_name, fields, batch_size, min(1, batch_size) if partial else batch_size, config)
        polling = self._config.controller.polling_mode if polling_mode is None else polling_mode
        until_s = deadline(timeout)
        way = _Consuming(store, until_s)
        snapshot: TaskSnapshot | None = None

        def look() -> BatchMeta | None:
            nonlocal snapshot
            found = self._choose(wanted, way)
            snapshot = found.snapshot
            return None if found.chosen is None else found.chosen[0]

        if polling:
            meta = look()
            return meta if meta is not None else batch_meta(self.session, partition, as_indexes([]), {}, ready=False)

        def too_late() -> TransferTimeoutError:
            return TransferTimeoutError(
                f"waited {timeout} s for {batch_size} rows of partition {partition!r} that have {name_some(fields)} "
                f"and are not consumed by task {task_name!r}: {self._what_is_there(wanted, snapshot)}. "
                "Wait longer (timeout=), take fewer (partial=True), or poll (polling_mode=True)",
                timeout_s=timeout,
                missing=max(0, batch_size - (0 if snapshot is None else len(snapshot.ready))),
            )

        def next_lapse_s() -> float | None:
            return None if snapshot is None else snapshot.next_lapse_s

        return (yield from wait_until(store, partition, until_s, look, too_late, changes_in_s=next_lapse_s))

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

    def get_consumption_status(self, task_name: str, partition_id: str) -> Status:
        """(global indexes, int8 [rows] with 1 where the task consumed the row); zeros for an unknown task,
        ``(None, None)`` for an unknown partition."""
        found, indexes, consumed = self._open().consumption(check_partition(partition_id), check_task(task_name))
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
        task = None if task_name is None else check_task(task_name)
        if partition in self._partitions():
            store.task_reset(partition, task)
        return True

    async_get_meta = asynchronous(get_meta)
    async_get_consumption_status = asynchronous(get_consumption_status)
    async_check_consumption_status = asynchronous(check_consumption_status)
    async_reset_consumption = asynchronous(reset_consumption)
