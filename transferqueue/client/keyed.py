"""Rows by the user's own keys, with tags: the Redis-style calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from tensordict import NonTensorStack, TensorDict, TensorDictBase
from tensordict.tensorclass import is_non_tensor

from transferqueue.aio import asynchronous
from transferqueue.batch_types import ConvertibleBatch
from transferqueue.client.arguments import check_choice
from transferqueue.client.core import check_keys, check_names, check_partition
from transferqueue.client.in_place import InPlaceCalls
from transferqueue.client.reads import HowToRead, check_layout, describe_missing, not_ready
from transferqueue.client.row_meta import Coverage
from transferqueue.client.writes import (
    DataParser,
    checked_batch,
    encode_row_tags,
    metadata_room,
    parsed,
    refuse_constants_only,
)
from transferqueue.codec import STORED, plan_put
from transferqueue.codec.dense import check_storable
from transferqueue.errors import (
    FieldNotReadyError,
    KeyNotFoundError,
    PartitionNotFoundError,
    SchemaMismatchError,
    TransferTimeoutError,
    name_some,
)
from transferqueue.metadata import KVBatchMeta
from transferqueue.waiting import Steps, blocking, deadline, wait_until

if TYPE_CHECKING:
    from transferqueue._native import Resolved


class KeyedCalls(InPlaceCalls):
    """Part of `TransferQueueClient`."""

    @blocking
    def kv_put(
        self,
        key: str,
        partition_id: str,
        fields: Mapping[str, Any] | TensorDictBase | None = None,
        tag: Mapping[str, Any] | None = None,
        data_parser: DataParser | None = None,
        *,
        lists_are_rows: bool = False,
        timeout: float | None = None,
    ) -> Steps[KVBatchMeta]:
        """Stores one row under a key; creates key and partition on first use.

        Args:
            key: any non-empty string.
            partition_id: the partition.
            fields: a dict (a tensor is the row's value; anything else is stored as a Python object) or a TensorDict of
                batch size 1. A field that exists is overwritten, others stay.
            tag: merged into the row's tags.
            data_parser, lists_are_rows: see `put`.
            timeout: seconds to wait for room (default ``put.timeout_s``).

        Returns:
            The key with all fields it has now and its merged tags.

        Raises:
            ValueError: neither fields nor tag, or a nested tensor in the dict. StorageFullError: no room.
        """
        columns: Any = fields
        if isinstance(fields, Mapping) and not isinstance(fields, TensorDictBase):
            columns = {name: _as_column(name, value) for name, value in fields.items()}
        elif fields is not None:
            columns = checked_batch(fields)
            if tuple(columns.batch_size)[:1] != (1,):
                raise SchemaMismatchError(
                    f"kv_put stores one row, the batch has batch size {list(columns.batch_size)}: use kv_batch_put",
                    expected=1,
                    found=tuple(columns.batch_size),
                )
        tags = None if tag is None else [tag]
        return (yield from self._put_keys([key], partition_id, columns, tags, data_parser, timeout, lists_are_rows))

    @blocking
    def kv_batch_put(
        self,
        keys: str | list[str],
        partition_id: str,
        fields: TensorDictBase | ConvertibleBatch | None = None,
        tags: Sequence[Mapping[str, Any]] | None = None,
        data_parser: DataParser | None = None,
        *,
        lists_are_rows: bool = False,
        timeout: float | None = None,
    ) -> Steps[KVBatchMeta]:
        """Stores one row per key, all at once; see `kv_put`.

        Args:
            keys: distinct.
            fields: a TensorDict of batch size [number of keys], or a batch with ``to_tensordict`` (see `put`).
            tags: one dict per key.

        Raises:
            ValueError: neither fields nor tags, duplicate keys, or sizes that do not match.
        """
        if fields is not None:
            fields = checked_batch(fields)
        return (yield from self._put_keys(keys, partition_id, fields, tags, data_parser, timeout, lists_are_rows))

    def _put_keys(
        self,
        keys: Any,
        partition_id: str,
        fields: Any,
        tags: Any,
        parser: DataParser | None,
        timeout: float | None,
        lists_are_rows: bool,
    ) -> Steps[KVBatchMeta]:
        store, listed, partition = self._open(), check_keys(keys), check_partition(partition_id)
        if fields is None and tags is None:
            raise ValueError("give fields, tags, or both: there is nothing to put")
        encoded = encode_row_tags(tags, len(listed), check_pickles=self._config.unpickles_own)
        metadata_room(store, listed, encoded)
        info: dict[str, Any] = {}
        if fields is None:
            done = yield from self._named(timeout, partition, keys=listed, tags=encoded)
        else:
            rows = int(fields.batch_size[0]) if isinstance(fields, TensorDictBase) else 1
            if rows != len(listed):
                raise SchemaMismatchError(
                    f"the number of keys ({len(listed)}) does not match the batch size of fields ({rows})",
                    expected=len(listed),
                    found=rows,
                )
            plan = plan_put(parsed(fields, rows, parser), rows, lists_are_rows=lists_are_rows)
            refuse_constants_only(plan, rows)
            info = plan.batch_info
            if plan.layouts:
                done = yield from self._stored(plan, timeout, partition, keys=listed, tags=encoded)
            else:
                done = yield from self._named(timeout, partition, keys=listed, tags=encoded)
        made = self._kv_meta(listed if len(done.indexes) else [], partition, done, info)
        made._shed_rows = done.shed_rows
        return made

    @blocking
    def kv_batch_get(
        self,
        keys: str | list[str],
        partition_id: str,
        select_fields: str | Sequence[str] | None = None,
        *,
        missing: str = "raise",
        missing_fields: str = "raise",
        mode: str | None = None,
        timeout: float | None = None,
        device: str | torch.device | None = None,
        layout: str = STORED,
    ) -> Steps[TensorDict]:
        """The rows of `keys`, in their order.

        Args:
            keys: a key or a list; a key may be named twice.
            partition_id: their partition.
            select_fields: default: the fields that all the keys have.
            missing: "raise", or "skip" to leave out keys that do not exist.
            missing_fields: "raise", or "skip" to leave out those of `select_fields` that not all the keys have; when
                none is left, the batch has no columns.
            mode, timeout, device, layout: see `get_data`; with `timeout` keys that do not exist yet are waited for,
                too.

        Raises:
            KeyNotFoundError, PartitionNotFoundError: keys that do not exist are named.
            FieldNotReadyError: a field is not there on some rows, or the keys have no field in common.
            TransferTimeoutError: not there within `timeout`.
        """
        how = KeyedRead(missing, missing_fields, mode, timeout, device, layout)
        return (yield from self._get_keys(keys, partition_id, select_fields, how))

    def _get_keys(self, keys: Any, partition_id: str, select_fields: Any, how: KeyedRead) -> Steps[TensorDict]:
        self._open()
        listed, partition = check_keys(keys, distinct=False), check_partition(partition_id)
        fields = None if select_fields is None else check_names(select_fields, "select_fields")
        how.check()
        read: HowToRead = (self._read_mode(how.mode, how.device), how.timeout, None, how.layout, None)
        batch = yield from self._read_keys(partition, listed, fields, how, read)
        return batch if how.device is None else batch.to(how.device)

    def _read_keys(
        self, partition: str, keys: list[str], fields: list[str] | None, how: KeyedRead, read: HowToRead
    ) -> Steps[TensorDict]:
        found = yield from self._resolve_some(partition, keys, fields, how)
        if found is None:
            return TensorDict({}, batch_size=[0])
        return self._decoded(partition, *found, read[0], read[3])

    def _resolve_some(
        self, partition: str, keys: list[str], fields: list[str] | None, how: KeyedRead
    ) -> Steps[tuple[Resolved, list[str]] | None]:
        """Rows of the keys, leased, and the fields that are read of them; None: none is there, and may be missing."""
        while True:
            try:
                return (yield from self._resolve_in_time(partition, keys, fields, how))
            except (KeyNotFoundError, PartitionNotFoundError):
                if how.missing == "raise":
                    raise
                # Mostly all keys are there, and one look is enough. One may be cleared between these two: then there
                # is a third.
                found, indexes = self._store.find_keys(partition, keys)
                keys = [key for key, index in zip(keys, indexes.tolist(), strict=True) if found and index >= 0]
                if not keys:
                    return None

    def _resolve_in_time(
        self, partition: str, keys: list[str], fields: list[str] | None, how: KeyedRead
    ) -> Steps[tuple[Resolved, list[str]]]:
        """`_resolve_keys`, tried again until the timeout (None: not again)."""
        skip, timeout = how.missing_fields == "skip", how.timeout
        if timeout is None:
            return self._resolve_keys(partition, keys, fields, skip)

        def look() -> tuple[Resolved, list[str]] | None:
            try:
                return self._resolve_keys(partition, keys, fields, skip)
            except KeyError as error:
                if how.missing == "skip" and not isinstance(error, FieldNotReadyError):
                    raise
                return None  # may come: whoever puts it wakes us

        return (
            yield from wait_until(
                self._store,
                partition,
                deadline(timeout),
                look,
                lambda: self._keys_timeout(partition, keys, fields, timeout),
            )
        )

    @blocking
    def kv_batch_get_by_meta(
        self,
        meta: KVBatchMeta,
        select_fields: str | Sequence[str] | None = None,
        *,
        missing: str = "raise",
        missing_fields: str = "raise",
        mode: str | None = None,
        timeout: float | None = None,
        device: str | torch.device | None = None,
        layout: str = STORED,
    ) -> Steps[TensorDict]:
        """The rows of a KVBatchMeta; its `fields` limit what is read. See `kv_batch_get`.

        Raises:
            ValueError: no partition, or select_fields that are not among the metadata's fields.
        """
        keys, partition, fields = self._of_meta(meta, select_fields)
        if not keys:
            return TensorDict({}, batch_size=[0])
        how = KeyedRead(missing, missing_fields, mode, timeout, device, layout)
        return (yield from self._get_keys(keys, partition, fields, how))

    def kv_list(self, partition_id: str | None = None) -> dict[str, dict[str, dict[str, Any]]]:
        """``{partition: {key: tags}}`` in the order of creation; an unknown partition gives ``{}``."""
        store = self._open()
        names = self._partitions() if partition_id is None else [check_partition(partition_id)]
        listed: dict[str, dict[str, dict[str, Any]]] = {}
        for partition in names:
            listing = store.list_rows(partition)
            if listing.partition_found:
                tags = self._tags.decode_all(listing.tags)
                listed[partition] = {key: row for key, row in zip(listing.keys, tags, strict=True) if key is not None}
        return listed

    def kv_clear(self, keys: str | list[str], partition_id: str) -> None:
        """Removes the rows of `keys`; keys and partitions that do not exist are ignored.

        Raises:
            TransferTimeoutError: as in `clear_samples`.
        """
        store, listed = self._open(), check_keys(keys, distinct=False)
        store.clear_rows(check_partition(partition_id), keys=list(dict.fromkeys(listed)))

    def _resolve_keys(
        self, partition: str, keys: list[str], fields: list[str] | None, skip_fields: bool = False
    ) -> tuple[Resolved, list[str]]:
        """Rows that all exist and have the fields, leased; else an error and no lease."""
        resolved = self._store.resolve(partition, keys=keys, fields=fields)
        if resolved.complete and resolved.fields:
            return resolved, resolved.fields if fields is None else fields
        try:
            if not resolved.partition_found:
                raise self._unknown_partition(partition)
            if (resolved.indexes < 0).any():
                unknown = [key for key, index in zip(keys, resolved.indexes.tolist(), strict=True) if index < 0]
                raise self._unknown_keys(list(dict.fromkeys(unknown)), partition)
            coverage = Coverage(resolved)
            if fields is None:
                names = coverage.on_every_row()
                if not names:
                    raise self._nothing_in_common(partition, keys, resolved, coverage)
                return resolved, names
            lacking = coverage.missing(fields)
            there = [name for name in fields if name not in lacking] if skip_fields else []
            if there:
                return resolved, there
            if lacking and skip_fields:
                resolved.release()
                # Whether they have any field in common decides between nothing to read and nothing there.
                return self._resolve_keys(partition, keys, None)[0], []
            if lacking:
                raise not_ready(partition, resolved, lacking, keys, self._store.field_names(partition))
        except BaseException:
            resolved.release()
            raise
        return resolved, fields

    def _nothing_in_common(
        self, partition: str, keys: list[str], resolved: Resolved, coverage: Coverage
    ) -> FieldNotReadyError:
        without = [key for key, ready in zip(keys, _has_any(resolved, coverage), strict=True) if not ready]
        what = f"keys {name_some(without)} have no data" if without else "the keys have no field in common"
        return FieldNotReadyError(
            f"partition {partition!r}: {what}, so there is nothing to read that is ready on all of them; name the "
            "fields with select_fields, or wait with timeout=",
            keys=tuple(without or keys),
            rows=tuple(resolved.indexes.tolist()),
            partition_id=partition,
        )

    def _keys_timeout(
        self, partition: str, keys: list[str], fields: list[str] | None, timeout: float | None
    ) -> TransferTimeoutError:
        resolved = self._store.resolve(partition, keys=keys, fields=fields, lease=False)
        unknown = [key for key, index in zip(keys, resolved.indexes.tolist(), strict=True) if index < 0]
        missing = {} if unknown else Coverage(resolved).missing(fields or [])
        what = (
            f"keys {name_some(unknown)} do not exist" if unknown else describe_missing(resolved, missing) or "no data"
        )
        return TransferTimeoutError(
            f"waited {timeout} s for {len(keys)} keys of partition {partition!r}: {what}"
            f"{self._what_does_not_exist(partition, fields or ())}",
            timeout_s=timeout,
            missing=unknown or missing,
        )

    def _of_meta(self, meta: KVBatchMeta, select_fields: Any) -> tuple[list[str], str, list[str] | None]:
        if not isinstance(meta, KVBatchMeta):
            raise TypeError(f"kv_batch_get_by_meta takes a KVBatchMeta, not {type(meta).__name__}")
        self._check_session(meta)
        if meta.partition_id is None:
            raise ValueError("the metadata names no partition: set its partition_id")
        fields = None if meta.fields is None else list(meta.fields)
        if select_fields is not None:
            wanted = check_names(select_fields, "select_fields")
            unknown = [name for name in wanted if fields is not None and name not in fields]
            if unknown:
                raise ValueError(
                    f"select_fields {name_some(unknown)} not found among the metadata's: {name_some(fields or [])}"
                )
            fields = wanted
        return list(meta.keys), meta.partition_id, fields or None

    async_kv_put = asynchronous(kv_put)
    async_kv_batch_put = asynchronous(kv_batch_put)
    async_kv_batch_get = asynchronous(kv_batch_get)
    async_kv_list = asynchronous(kv_list)
    async_kv_clear = asynchronous(kv_clear)
    async_kv_batch_get_by_meta = asynchronous(kv_batch_get_by_meta)


class KeyedRead(NamedTuple):
    """The options of a get by keys, see `KeyedCalls.kv_batch_get`."""

    missing: str
    missing_fields: str
    mode: str | None
    timeout: float | None
    device: Any
    layout: str

    def check(self) -> None:
        for name in ("missing", "missing_fields"):
            check_choice(getattr(self, name), ("raise", "skip"), name)
        check_layout(self.layout)


def _has_any(resolved: Resolved, coverage: Coverage) -> list[bool]:
    masks = [coverage.mask(name) for name in resolved.fields]
    return [any(bool(mask[row]) for mask in masks) for row in range(coverage.rows)]


def _as_column(name: str, value: Any) -> Any:
    """One value as a column of one row."""
    if isinstance(value, torch.Tensor):
        if value.is_nested:
            raise ValueError(
                f"field {name!r} is a nested tensor, which holds several rows: use kv_batch_put with a TensorDict"
            )
        check_storable(name, value)
        return value.unsqueeze(0)
    if isinstance(value, NonTensorStack):
        raise ValueError(f"field {name!r} is a NonTensorStack, which holds several rows: use kv_batch_put")
    return [value.data if is_non_tensor(value) else value]
