"""Waiting until rows are there."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any

from transferqueue.aio import asynchronous
from transferqueue.client.core import Indexes, as_indexes, check_batch_meta, check_keys, check_names, check_partition
from transferqueue.client.keyed import KeyedCalls
from transferqueue.client.reads import describe_missing
from transferqueue.client.row_meta import Coverage
from transferqueue.client.rows import stale
from transferqueue.errors import StaleMetadataError, TransferTimeoutError, name_some
from transferqueue.metadata import BatchMeta
from transferqueue.waiting import Steps, blocking, deadline, wait_until


class WaitCalls(KeyedCalls):
    """Part of `TransferQueueClient`."""

    @blocking
    def wait(
        self,
        partition_id: str,
        *,
        fields: str | Sequence[str],
        keys: str | list[str] | None = None,
        metadata: BatchMeta | None = None,
        count: int | None = None,
        task_name: str | None = None,
        timeout: float | None = None,
    ) -> Steps[BatchMeta]:
        """Waits until rows have all `fields`; consumes nothing.

        Args:
            partition_id: may not exist yet.
            fields: names.
            keys, metadata, count: which rows, one of the three: those of keys (that may not exist yet), those of
                metadata, or any `count` rows.
            task_name: with `count`: only rows that this task has not consumed and nobody has claimed for it.
            timeout: seconds; None for ever, 0 to look once.

        Returns:
            The rows, in the order of keys or metadata, or of their creation; ready, with tags as custom_meta.

        Raises:
            TransferTimeoutError: says what is missing. StaleMetadataError: a row of `metadata` was cleared.
        """
        store, names, partition = self._open(), check_names(fields, "fields"), check_partition(partition_id)
        if sum(given is not None for given in (keys, metadata, count)) != 1:
            raise ValueError("wait takes exactly one of keys, metadata and count")
        if count is not None and (isinstance(count, bool) or not isinstance(count, Integral) or count < 0):
            raise ValueError(f"count must be an int >= 0, not {count!r}")
        if task_name is not None and count is None:
            raise ValueError("wait takes task_name together with count only")
        if metadata is not None:
            self._check_session(check_batch_meta(metadata, "wait"))
            if metadata.size and metadata.partition_names != (partition,):
                raise ValueError(f"the metadata is of {name_some(metadata.partition_names)}, not of {partition!r}")
            if not metadata.size:
                return metadata.select_fields(names)
        listed = None if keys is None else check_keys(keys)

        next_lapse_s: float | None = None

        def look() -> BatchMeta | None:
            nonlocal next_lapse_s
            if listed is not None:
                return self._keys_ready(partition, listed, names)
            if metadata is not None:
                return self._rows_ready(partition, metadata, names)
            assert count is not None
            ready, next_lapse_s = self._ready_rows(partition, names, task_name)
            return self._found(partition, as_indexes(ready[:count]), names) if len(ready) >= count else None

        def too_late() -> TransferTimeoutError:
            what, missing = self._what_is_missing(partition, names, listed, metadata, count, task_name)
            return TransferTimeoutError(
                f"waited {timeout} s for rows of partition {partition!r} that have {name_some(names)}: {what}"
                f"{self._what_does_not_exist(partition, names)}",
                timeout_s=timeout,
                missing=missing,
            )

        return (
            yield from wait_until(
                store, partition, deadline(timeout), look, too_late, changes_in_s=lambda: next_lapse_s
            )
        )

    def _keys_ready(self, partition: str, keys: list[str], fields: list[str]) -> BatchMeta | None:
        resolved = self._store.resolve(partition, keys=keys, fields=fields, lease=False)
        # One look decides and describes: whoever waits has a core to wake up and its caches to fill as it is.
        coverage = Coverage(resolved)
        if not coverage.is_complete(fields) and ((coverage.indexes < 0).any() or coverage.missing(fields)):
            return None
        return self._meta_of_coverage(partition, coverage, fields)

    def _rows_ready(self, partition: str, metadata: BatchMeta, fields: list[str]) -> BatchMeta | None:
        resolved = self._store.resolve(partition, indexes=as_indexes(metadata.index_array), fields=fields, lease=False)
        if len(resolved.gone):
            raise stale(partition, resolved.indexes[resolved.gone])
        coverage = Coverage(resolved)
        if coverage.missing(fields):
            return None
        found = self._meta_of_coverage(partition, coverage, fields)
        if metadata.num_padding:
            found._pads = metadata._pads
        return found

    def _ready_rows(self, partition: str, fields: list[str], task: str | None) -> tuple[Indexes, float | None]:
        """(global indexes, seconds until more may come back from a claim)."""
        if task is not None:
            snapshot = self._store.task_snapshot(partition, task, fields)
            return snapshot.ready, snapshot.next_lapse_s
        _, indexes, ready, _ = self._store.production(partition, fields)
        return indexes[ready.all(axis=1)], None

    def _found(self, partition: str, indexes: Any, fields: list[str]) -> BatchMeta | None:
        try:
            return self._meta_of_rows(partition, indexes, fields)
        except StaleMetadataError:
            return None  # cleared between the two looks: still waiting

    def _what_is_missing(
        self,
        partition: str,
        fields: list[str],
        keys: list[str] | None,
        metadata: BatchMeta | None,
        count: int | None,
        task: str | None,
    ) -> tuple[str, Any]:
        if count is not None:
            there = len(self._ready_rows(partition, fields, task)[0])
            return f"{there} of {count} are there", max(0, count - there)
        indexes = None if metadata is None else as_indexes(metadata.index_array)
        resolved = self._store.resolve(partition, indexes=indexes, keys=keys, fields=fields, lease=False)
        unknown = [key for key, index in zip(keys or [], resolved.indexes.tolist(), strict=False) if index < 0]
        if unknown:
            return f"keys {name_some(unknown)} do not exist", unknown
        missing = Coverage(resolved).missing(fields)
        rows = {field: [int(resolved.indexes[row]) for row in positions] for field, positions in missing.items()}
        return describe_missing(resolved, missing), rows

    async_wait = asynchronous(wait)
