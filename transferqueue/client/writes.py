"""Storing rows: planned, room reserved, copied once, published in one transaction."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from tensordict import NonTensorStack, TensorDictBase, is_tensor_collection
from tensordict.tensorclass import is_non_tensor

from transferqueue.aio import asynchronous
from transferqueue.allocation import give_up
from transferqueue.batch_types import ConvertibleBatch, as_tensordict
from transferqueue.client.core import (
    Indexes,
    as_indexes,
    check_batch_meta,
    check_partition,
    refuse_duplicate_rows,
)
from transferqueue.client.limits import NothingPut
from transferqueue.client.reads import ReadCalls
from transferqueue.client.row_choice import choose_rows
from transferqueue.client.row_meta import Coverage, batch_meta, new_rows_meta, stored_schema
from transferqueue.codec import PutPlan, plan_put
from transferqueue.config import format_size
from transferqueue.errors import SchemaMismatchError, StorageFullError
from transferqueue.metadata import BatchMeta, FieldSchema, KVBatchMeta
from transferqueue.service.room_search import RoomSearch
from transferqueue.tag_maps import encode_tags
from transferqueue.waiting import Sleep, Steps, blocking, is_over, lock_timeout

if TYPE_CHECKING:
    from transferqueue._native import PublishResult, Reservation, Store
    from transferqueue.nodes.stubs import StubPlan

# A dropped view frees room without a commit, so nobody is woken by it: whoever waits for room looks this often.
_ROOM_LOOK_S = 0.05
_MUCH_METADATA_NBYTES = 1 << 20
DataParser = Callable[[dict[str, Any]], Mapping[str, Any]]


class WriteCalls(ReadCalls):
    """Part of `TransferQueueClient`."""

    # Clears what can be had again when a put finds no room; see `RoomSearch`.
    _evict: Callable[[int], int] | None = None

    @blocking
    def put(
        self,
        data: TensorDictBase | ConvertibleBatch,
        metadata: BatchMeta | None = None,
        partition_id: str | None = None,
        data_parser: DataParser | None = None,
        *,
        tags: Sequence[Mapping[str, Any]] | None = None,
        lists_are_rows: bool = False,
        timeout: float | None = None,
    ) -> Steps[BatchMeta]:
        """Stores a TensorDict of batch size [rows]; visible whole or not at all. One copy.

        Args:
            data: of batch size [rows, ...] the first number counts rows, further ones are dimensions of each row; it
                comes back with batch size [rows]. Its tensors may be changed as soon as the call returns.
                ``NonTensorData`` entries are values of the batch: they are not stored but become extra_info of the
                returned metadata. A `DataProto`, or another batch with ``to_tensordict``, is stored like the TensorDict
                that it converts to: its `meta_info` becomes extra_info.
            metadata: the rows that get the fields; pads are not stored. Without it, new rows are made.
            partition_id: where new rows go; created on first use.
            data_parser: called on a dict of columns (nested and Python columns as lists of rows) before storing; must
                return the same fields with the same number of rows.
            tags: one dict per row, merged into the tags of the rows in the same transaction.
            lists_are_rows: a ``NonTensorData`` that holds a list with one entry per row is a column of them.
            timeout: seconds to wait for room (default ``put.timeout_s``).

        Returns:
            `metadata`, to which the fields were added, or the metadata of the new rows; ready. Its `shed_rows`
            says how many rows limits removed for it (see `set_limits`).

        Raises:
            ValueError: neither metadata nor partition_id.
            SchemaMismatchError: `data` has another number of rows than `metadata`, something that cannot be stored, or
                for new rows only values of the whole batch.
            StaleMetadataError: a row of `metadata` was cleared; nothing is stored.
            StorageFullError: no room within `timeout`; nothing is stored.
            LimitExceededError: the partition's limits do not allow it (see `set_limits`); nothing is stored.
        """
        self._open()
        batch = checked_batch(data)
        rows = int(batch.batch_size[0])
        if metadata is None:
            if partition_id is None:
                raise ValueError("put needs metadata (rows that exist) or partition_id (where new rows go)")
            partition = check_partition(partition_id)
            encoded = encode_row_tags(tags, rows, check_pickles=self._config.unpickles_own)
            metadata_room(self._store, (), encoded)
            plan = plan_put(parsed(batch, rows, data_parser), rows, lists_are_rows=lists_are_rows)
            refuse_constants_only(plan, rows)
            if not rows or not plan.layouts:
                # Nothing to store; a batch of no rows still says which fields it would have.
                made = batch_meta(self.session, partition, as_indexes([]), schemas_of(plan.schemas), ready=False)
                made.extra_info = dict(plan.batch_info)
                return made
            done = yield from self._stored(plan, timeout, partition, count=rows, tags=encoded)
            made = new_rows_meta(self.session, partition, done.indexes, schemas_of(plan.schemas))
            made._shed_rows = done.shed_rows
            if encoded and made.size:
                made.custom_meta = tags
            if plan.batch_info:
                made.extra_info = dict(plan.batch_info)
            return made
        target = self._target(metadata, partition_id, "put")
        columns = parsed(batch, rows, data_parser)
        if rows != metadata.size:
            raise SchemaMismatchError(
                f"the data has {rows} rows, the metadata {metadata.size}", expected=metadata.size, found=rows
            )
        encoded = encode_row_tags(tags, rows, check_pickles=self._config.unpickles_own)
        metadata_room(self._store, (), encoded)
        real = metadata
        if metadata.num_padding:
            keep = np.flatnonzero(~metadata.padding_mask)
            real = metadata.unpad()
            columns = choose_rows(columns, keep)
            encoded = [encoded[row] for row in keep.tolist()] if encoded else []
        plan = plan_put(columns, real.size, lists_are_rows=lists_are_rows)
        if real.size and plan.layouts:
            indexes = as_indexes(real.index_array)
            refuse_duplicate_rows(indexes)
            done = yield from self._stored(plan, timeout, target, indexes=indexes, tags=encoded)
            metadata._shed_rows = done.shed_rows
        elif real.size and encoded:
            yield from self._merge_tags(target, as_indexes(real.index_array), encoded)
        yield from self._add_fields(metadata, real, plan, target)
        return metadata

    @blocking
    def _reserved(self, nbytes: int, timeout: float | None = None) -> Steps[Reservation]:
        return (yield from self._reserve(nbytes, timeout))

    def _stored(
        self,
        plan: PutPlan | StubPlan,
        timeout: float | None,
        partition: str,
        *,
        may_drop: bool = True,
        elsewhere_nbytes: int | None = None,
        **rows: Any,
    ) -> Steps[PublishResult | NothingPut]:
        """Room reserved, bytes copied, published on `rows` (see `Store.publish`), within the partition's limits (which
        may drop it, if it `may_drop`); on an error nothing is left."""
        counted_nbytes = plan.nbytes if elsewhere_nbytes is None else elsewhere_nbytes
        reservation: Reservation | None = None

        def attempt(left_s: float | None) -> Steps[PublishResult]:
            nonlocal reservation
            until_s = self._put_deadline(left_s)
            if reservation is None:
                reservation = yield from self._reserve(plan.nbytes, left_s, ahead=True)
                plan.write(reservation)
            # Where another put was faster since the look at the limits, the bytes stay for the next attempt.
            return self._store.publish(
                partition,
                reservation=reservation,
                fields=plan.layouts,
                elsewhere_nbytes=elsewhere_nbytes,
                lock_timeout_s=lock_timeout(until_s),
                **rows,
            )

        try:
            done = yield from self._within_limits(
                partition, timeout, attempt, nbytes=counted_nbytes, may_drop=may_drop, **rows
            )
        except BaseException:
            if reservation is not None:
                give_up(reservation)
            raise
        if reservation is not None and isinstance(done, NothingPut):
            give_up(reservation)
        return done

    def _reserve(self, nbytes: int, timeout: float | None, *, ahead: bool = False) -> Steps[Reservation]:
        until_s = self._put_deadline(timeout)
        try:
            return self._store.reserve(nbytes, 0.0, ahead, lock_timeout_s=lock_timeout(until_s))
        except StorageFullError as error:
            if _never(error, nbytes):
                raise
        began_s = time.monotonic()
        search = RoomSearch(self._store, nbytes, lambda: lock_timeout(until_s), self._evict)
        while True:
            over = is_over(until_s)
            sleep = Sleep.before_look(self._store, None, until_s, longest_s=_ROOM_LOOK_S)
            try:
                reservation = search.reserve(ahead)
            except StorageFullError as error:
                if over or _never(error, nbytes):
                    self._store.count_wait(time.monotonic() - began_s, for_room=True, timed_out=True)
                    raise
            else:
                self._store.count_wait(time.monotonic() - began_s, for_room=True, timed_out=False)
                return reservation
            yield sleep

    def _target(self, metadata: BatchMeta, partition_id: str | None, what: str) -> str:
        """The one partition of metadata that is written to."""
        self._check_session(check_batch_meta(metadata, what))
        names = metadata.partition_names
        if len(names) > 1:
            raise ValueError(
                f"{what} is atomic within one partition, and the metadata has rows of {len(names)}: "
                f"{', '.join(map(repr, names))}; use chunk_by_partition()"
            )
        if partition_id is not None and names and names[0] != partition_id:
            raise ValueError(f"the metadata is of partition {names[0]!r}, not of partition_id {partition_id!r}")
        if not names and partition_id is None:
            return ""
        return names[0] if names else check_partition(partition_id)

    def _merge_tags(self, partition: str, indexes: Indexes, encoded: list[bytes]) -> Steps[None]:
        self._store.merge_tags(partition, indexes, encoded)
        return
        yield  # never: nothing to wait for

    def _status_of(self, partition: str, fields: list[str], indexes: Indexes) -> Steps[Any]:
        """int8 [rows, fields] of these rows."""
        return self._store.production(partition, fields, indexes)[2]
        yield  # never: nothing to wait for

    def _add_fields(self, metadata: BatchMeta, real: BatchMeta, plan: PutPlan, partition: str) -> Steps[None]:
        schemas = schemas_of(plan.schemas)
        was_ready = metadata.is_ready or not (set(metadata.field_names) - schemas.keys())
        metadata.add_schema(schemas, set_all_ready=was_ready and bool(plan.layouts))
        metadata.extra_info.update(plan.batch_info)
        if metadata.session is None:
            metadata.session = self.session
        if not was_ready and real.size:
            # Fields that the metadata named before may have come meanwhile: the index knows.
            ready = yield from self._status_of(partition, metadata.field_names, as_indexes(metadata.index_array))
            metadata.production_status = ready.all(axis=1).astype(np.int8)

    def _kv_meta(
        self,
        keys: list[str],
        partition: str,
        done: PublishResult | NothingPut,
        info: Mapping[str, Any] | None = None,
    ) -> KVBatchMeta:
        """What a put by keys returns: all fields that every key has, old ones too, and the merged tags."""
        indexes = as_indexes(done.indexes)
        # Of these rows only: to ask the partition for its fields is to look at every put that was ever made into it.
        resolved = self._store.resolve(partition, indexes=indexes, fields=None, lease=False)
        return KVBatchMeta(
            keys=keys,
            tags=self._tags_of(partition, indexes),
            partition_id=partition,
            fields=sorted(Coverage(resolved).on_every_row()),
            extra_info=dict(info or {}),
            session=self.session,
        )

    async_put = asynchronous(put)


def _never(error: StorageFullError, nbytes: int) -> bool:
    """Whether waiting for room is of no use."""
    return error.resource != "payload" or (error.total_bytes is not None and nbytes > error.total_bytes)


def metadata_room(store: Store, keys: Sequence[str], tags: Sequence[bytes]) -> None:
    """Refuses keys and tags that the index cannot hold, before a transaction that would fail after a long time.

    Raises:
        StorageFullError: names what they take and what is there.
    """
    wanted = sum(map(len, keys)) + sum(map(len, tags))
    if wanted < _MUCH_METADATA_NBYTES:
        return
    figures = store.stats()
    total, free = figures["index_total_bytes"], figures["index_total_bytes"] - figures["index_used_bytes"]
    if wanted > free // 2:
        raise StorageFullError(
            f"keys and tags of {format_size(wanted)} do not fit the session's index, which has {format_size(free)} of "
            f"{format_size(total)} free and needs about twice their size; put large values as fields, use fewer or "
            "shorter keys, or start the session with a larger storage.index_size",
            resource="index",
            wanted_bytes=wanted,
            free_bytes=free,
            total_bytes=total,
        )


def refuse_constants_only(plan: PutPlan, rows: int) -> None:
    """New rows of which nothing would be stored.

    Raises:
        SchemaMismatchError: every entry is one value for the whole batch; names them.
    """
    if rows and plan.batch_info and not plan.layouts:
        names = ", ".join(map(repr, sorted(plan.batch_info)))
        raise SchemaMismatchError(
            f"nothing to store for {rows} rows: {names} are values of the whole batch (NonTensorData), which travel in "
            "extra_info; give one value per row (NonTensorStack, or a list in a dict) or a tensor field beside them"
        )


def encode_row_tags(tags: Any, rows: int, *, check_pickles: bool) -> list[bytes]:
    """One tag map per row; empty for no tags at all. `check_pickles`: see `encode_tags`.

    Raises:
        ValueError: another number of dicts than rows. TypeError: not dicts.
    """
    if tags is None:
        return []
    if isinstance(tags, (str, Mapping)) or not isinstance(tags, Iterable):
        raise TypeError(f"tags must be a sequence of one dict per row, not {tags!r:.200}")
    listed = list(tags)
    if len(listed) != rows:
        raise ValueError(f"{len(listed)} tags does not match {rows} rows: one dict per row")
    encoded = [encode_tags(row, check_pickles=check_pickles) for row in listed]
    return encoded if any(encoded) else []


def schemas_of(raw: Mapping[str, bytes]) -> dict[str, FieldSchema]:
    return {name: stored_schema(schema) for name, schema in raw.items()}


def checked_batch(data: Any) -> Any:
    """A TensorDict, made of a batch of another type where it can be. Raises `TypeError` for anything else."""
    data = as_tensordict(data)
    if not is_tensor_collection(data) or is_non_tensor(data):
        raise TypeError(
            f"put takes a TensorDict or DataProto, not {type(data).__name__}; kv_put takes a dict for one row"
        )
    if not data.batch_size:
        raise SchemaMismatchError("the TensorDict has no batch dimension, hence no rows: give it batch_size=[rows]")
    return data


def parsed(data: Any, rows: int, parser: DataParser | None) -> Any:
    """What `parser` makes of the columns of a TensorDict or dict; the data itself without a parser.

    Raises:
        RuntimeError: the parser does not return the same fields with the same number of rows.
    """
    if parser is None:
        return data
    if not callable(parser):
        raise TypeError(f"data_parser must be a function, not {parser!r:.200}")
    columns = {str(name): _plain_column(data.get(name)) for name in data.keys()}
    made = parser(dict(columns))
    if not isinstance(made, Mapping) or set(made) != set(columns):
        found = sorted(map(str, made)) if isinstance(made, Mapping) else type(made).__name__
        raise RuntimeError(f"data_parser must return a dict with the fields {sorted(columns)}, not {found}")
    for name, column in made.items():
        if hasattr(column, "__len__") and not isinstance(column, str) and len(column) != rows:
            raise RuntimeError(f"data_parser returned {len(column)} rows of field {name!r} for {rows} rows")
    return dict(made)


def _plain_column(column: Any) -> Any:
    """A dense tensor as it is; nested tensors and Python columns as lists of rows."""
    if getattr(column, "is_nested", False):
        return list(column.unbind())
    return column.tolist() if isinstance(column, NonTensorStack) else column
