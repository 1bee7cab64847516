"""Calls on rows as such: states, tags, look-ups between keys and indexes, removal. No payload moves."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from transferqueue.aio import asynchronous
from transferqueue.client.arguments import check_choice, check_indexes
from transferqueue.client.core import (
    Indexes,
    as_indexes,
    by_partition,
    check_batch_meta,
    check_keys,
    check_names,
    check_partition,
)
from transferqueue.client.limits import LimitCalls
from transferqueue.client.row_meta import Coverage, meta_of
from transferqueue.errors import KeyNotFoundError, StaleMetadataError, name_some
from transferqueue.metadata import BatchMeta
from transferqueue.session_stats import ClientStats, Stats
from transferqueue.tag_maps import encode_tags
from transferqueue.waiting import Steps, blocking

Status = tuple[torch.Tensor | None, torch.Tensor | None]


class RowCalls(LimitCalls):
    """Part of `TransferQueueClient`."""

    def clear_samples(self, metadata: BatchMeta) -> None:
        """Removes the rows of `metadata`; rows that are gone already are ignored.

        Views that anybody holds stay as they are; their memory returns when the last one is dropped. The partition
        stays, also when it is empty.

        Raises:
            TransferTimeoutError: a process that stands still kept the session's write lock for 30 s; names it. Large
                clears take several steps, each atomic: some of the rows may be gone.
        """
        store = self._open()
        self._check_session(check_batch_meta(metadata, "clear_samples"))
        for partition, indexes in by_partition(metadata):
            store.clear_rows(partition, indexes=indexes)

    def clear_partition(self, partition_id: str) -> None:
        """Removes a partition with all rows at once; an unknown one is no error.

        Raises:
            TransferTimeoutError: a process that stands still kept the session's write lock for 30 s; names it.
        """
        self._open().clear_partition(check_partition(partition_id))

    def get_partition_list(self) -> list[str]:
        """Names of the partitions, empty ones included."""
        self._open()
        return self._partitions()

    def set_custom_meta(self, metadata: BatchMeta) -> None:
        """Merges ``metadata.custom_meta`` into the tags of its rows.

        Raises:
            StaleMetadataError: a row was cleared; nothing is changed in its partition.
            TransferTimeoutError: as in `clear_partition`.
        """
        store = self._open()
        self._check_session(check_batch_meta(metadata, "set_custom_meta"))
        pieces = metadata.unpad().chunk_by_partition() if metadata.size else []
        for piece in pieces:
            tags = [encode_tags(row, check_pickles=self._config.unpickles_own) for row in piece.custom_meta]
            if any(tags):
                store.merge_tags(piece.partition_names[0], as_indexes(piece.index_array), tags)

    def get_production_status(self, data_fields: str | Sequence[str], partition_id: str) -> Status:
        """(global indexes, int8 [rows, fields] with 1 where a row has a field), rows in the order of their creation;
        ``(None, None)`` for an unknown partition or field."""
        fields = check_names(data_fields, "data_fields")
        found, indexes, ready, known = self._open().production(check_partition(partition_id), fields)
        if not found or not all(known):
            return None, None
        return torch.from_numpy(indexes), torch.from_numpy(ready)

    def check_production_status(self, data_fields: str | Sequence[str], partition_id: str) -> bool:
        """Whether all rows of the partition have all `data_fields`; False for an unknown partition or field."""
        _, status = self.get_production_status(data_fields, partition_id)
        return status is not None and bool((status == 1).all())

    @blocking
    def kv_retrieve_meta(
        self,
        keys: str | list[str],
        partition_id: str,
        create: bool = False,
        *,
        missing: str = "raise",
        timeout: float | None = None,
    ) -> Steps[BatchMeta]:
        """The rows of `keys`, in their order, with the fields that all of them have and their tags as custom_meta.

        Args:
            keys: a key or a list of distinct keys.
            partition_id: their partition.
            create: makes rows for keys that do not exist, without fields.
            missing: "raise", or "skip" to leave out keys that do not exist.
            timeout: seconds that `create` waits at limits of the partition (default ``put.timeout_s``).

        Raises:
            LimitExceededError: the partition's limits allow no such rows (see `set_limits`).
            KeyNotFoundError: keys that do not exist. PartitionNotFoundError: no such partition.
        """
        self._open()
        listed, partition = check_keys(keys), check_partition(partition_id)
        while True:
            if create:
                found = (yield from self._named(timeout, partition, keys=listed)).indexes
            else:
                found = self._find(listed, partition, missing)
            try:
                return self._meta_of_rows(partition, as_indexes(found), None)
            except StaleMetadataError:
                continue  # some were cleared between the two looks

    def kv_retrieve_keys(self, global_indexes: int | Sequence[int], partition_id: str) -> list[str | None]:
        """The key of each row; None for a row without a key, and for one that does not exist.

        Raises:
            PartitionNotFoundError: no such partition.
        """
        indexes = check_indexes(global_indexes)
        listing = self._open().describe_rows(check_partition(partition_id), indexes)
        if not listing.partition_found:
            raise self._unknown_partition(partition_id)
        return list(listing.keys)

    def fields_meta(self, partition_id: str, fields: str | Sequence[str] | None = None) -> BatchMeta:
        """Metadata without rows that knows the types of fields of a partition: reading it gives an empty batch with
        columns, for a rank that got no rows but runs all the same.

        Args:
            partition_id: an unknown one has no fields.
            fields: default: all fields that any of its rows has.
        """
        store, partition = self._open(), check_partition(partition_id)
        names = store.field_names(partition) if fields is None else check_names(fields, "fields")
        _, indexes, _, _ = store.production(partition, names)
        resolved = store.resolve(partition, indexes=as_indexes(indexes), fields=names, lease=False)
        return meta_of(self.session, partition, Coverage(resolved), names)[:0]

    def stats(self, partition_id: str | None = None) -> Stats:
        """Sizes, rows by state and clients; with `partition_id` the rows of that partition only.

        Raises:
            PartitionNotFoundError: no such partition.
        """
        store = self._open()
        partitions = self._partitions()
        if partition_id is not None and partition_id not in partitions:
            raise self._unknown_partition(partition_id)
        figures = store.stats()
        clients = [
            ClientStats(
                owner=client["owner"],
                pid=client["pid"],
                alive=client["alive"],
                leases=client["leases"],
                leased_bytes=client["leased_bytes"],
                pending_bytes=client["pending_bytes"],
                age_s=client["age_s"],
            )
            for client in store.clients()
        ]
        names = Stats.__dataclass_fields__.keys() - {"rows", "clients", "limits"}
        shown = partitions if partition_id is None else [partition_id]
        return Stats(
            **{name: int(figures.get(name, 0)) for name in names},
            rows=self._rows_by_state(shown),
            clients=clients,
            limits={name: self.get_limits(name) for name in shown if self._has_limits(name)},
        )

    def trim(self) -> int:
        """Gives the memory behind free space back to the system, and what this process keeps for gathers.

        Returns:
            bytes of the session's payload given back.
        """
        return self._open().trim()

    def _rows_by_state(self, partitions: Sequence[str]) -> dict[str, int]:
        rows = {"total": 0, "ready": 0, "partial": 0, "empty": 0, "unconsumed": 0}
        for partition in partitions:
            fields = self._store.field_names(partition)
            found, indexes, ready, _ = self._store.production(partition, fields)
            if not found:
                continue
            counts = ready.sum(axis=1) if fields else ready.sum(axis=1) * 0
            rows["total"] += len(indexes)
            rows["unconsumed"] += self._store.unconsumed_rows(partition)
            rows["ready"] += int((counts == len(fields)).sum()) if fields else 0
            rows["empty"] += int((counts == 0).sum())
        rows["partial"] = rows["total"] - rows["ready"] - rows["empty"]
        return rows

    def _find(self, keys: list[str], partition: str, missing: str) -> Indexes:
        """Rows of keys; -1 never comes back."""
        check_choice(missing, ("raise", "skip"), "missing")
        found, indexes = self._store.find_keys(partition, keys)
        if missing == "skip":
            return as_indexes(indexes[indexes >= 0])
        if not found:
            raise self._unknown_partition(partition)
        if (indexes < 0).any():
            unknown = [key for key, index in zip(keys, indexes.tolist(), strict=True) if index < 0]
            raise self._unknown_keys(unknown, partition)
        return as_indexes(indexes)

    def _unknown_keys(self, unknown: Sequence[str], partition: str) -> KeyNotFoundError:
        return KeyNotFoundError(
            f"partition {partition!r} has no {'key' if len(unknown) == 1 else 'keys'} {name_some(unknown)}: never put, "
            "or cleared. missing='skip' leaves unknown keys out",
            keys=tuple(unknown),
            partition_id=partition,
        )

    def _tags_of(self, partition: str, indexes: Indexes) -> list[dict[str, object]]:
        return self._tags.decode_all(self._store.describe_rows(partition, indexes).tags)

    def _meta_of_rows(self, partition: str, indexes: Indexes, fields: Sequence[str] | None) -> BatchMeta:
        """Rows that exist, with `fields` (None: those that all of them have) and their tags.

        Raises:
            StaleMetadataError: one was cleared meanwhile.
        """
        resolved = self._store.resolve(partition, indexes=indexes, fields=fields, lease=False)
        if len(resolved.gone):
            raise stale(partition, indexes[resolved.gone])
        coverage = Coverage(resolved)
        return self._meta_of_coverage(partition, coverage, coverage.on_every_row() if fields is None else fields)

    def _meta_of_coverage(self, partition: str, coverage: Coverage, fields: Sequence[str]) -> BatchMeta:
        """Rows that were found to exist, with `fields` and their tags."""
        tags = self._tags_of(partition, as_indexes(coverage.indexes))
        return meta_of(self.session, partition, coverage, list(fields), tags)

    async_clear_samples = asynchronous(clear_samples)
    async_clear_partition = asynchronous(clear_partition)
    async_get_partition_list = asynchronous(get_partition_list)
    async_set_custom_meta = asynchronous(set_custom_meta)
    async_get_production_status = asynchronous(get_production_status)
    async_check_production_status = asynchronous(check_production_status)
    async_kv_retrieve_meta = asynchronous(kv_retrieve_meta)
    async_kv_retrieve_keys = asynchronous(kv_retrieve_keys)
    async_fields_meta = asynchronous(fields_meta)
    async_stats = asynchronous(stats)
    async_trim = asynchronous(trim)


def stale(partition: str, rows: Indexes) -> StaleMetadataError:
    """The error for rows that were cleared since the metadata was made."""
    listed = [int(row) for row in rows]
    return StaleMetadataError(
        f"rows of partition {partition!r} were cleared after this metadata was made: {len(listed)} global indexes, "
        f"{name_some(listed)}. Indexes are never used again; ask for new metadata",
        rows=tuple(listed),
        partition_id=partition,
    )
