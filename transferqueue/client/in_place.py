"""Rows computed in place: room reserved, tensors handed out, published without a copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any

from tensordict import is_tensor_collection

from transferqueue.aio import asynchronous
from transferqueue.allocation import Allocation, reserved_nbytes
from transferqueue.client.core import Indexes, as_indexes, check_keys, check_partition, refuse_duplicate_rows
from transferqueue.client.limits import NothingPut
from transferqueue.client.row_meta import new_rows_meta
from transferqueue.client.writes import WriteCalls, encode_row_tags, metadata_room, schemas_of
from transferqueue.codec import plan_alloc
from transferqueue.metadata import BatchMeta, FieldSchema
from transferqueue.waiting import Steps, blocking, run_steps

if TYPE_CHECKING:
    from transferqueue._native import FieldLayout, PublishResult, Reservation
    from transferqueue.codec import AllocPlan
    from transferqueue.codec.block_plan import BlockPlan


class InPlaceCalls(WriteCalls):
    """Part of `TransferQueueClient`."""

    _last_plan: tuple[int, tuple[tuple[Any, Any], ...], AllocPlan | None] = (0, (), None)

    @blocking
    def alloc(
        self,
        fields: Mapping[Any, Any],
        *,
        partition_id: str,
        keys: str | list[str] | None = None,
        metadata: BatchMeta | None = None,
        batch_size: int | None = None,
        timeout: float | None = None,
    ) -> Steps[Allocation[Any]]:
        """Rows to be computed in place: ``.data`` is a writable TensorDict inside the segment, `commit` publishes it
        without a copy.

        Args:
            fields: name -> ``(shape per row, dtype)`` or `Jagged`.
            partition_id: where the rows go.
            keys, metadata, batch_size: which rows: those of keys (created when missing), existing ones, or so many new
                ones. With none of them the lengths of a `Jagged` field say how many.
            timeout: seconds to wait for room (default ``put.timeout_s``).

        Raises:
            SchemaMismatchError: descriptions that do not fit each other. StorageFullError: no room.
        """
        self._open()
        if (keys is not None) + (metadata is not None) + (batch_size is not None) > 1:
            raise ValueError("alloc takes one of keys, metadata and batch_size")
        if not isinstance(fields, Mapping) or is_tensor_collection(fields):
            raise TypeError(f"alloc takes a dict: name -> (shape of one row, dtype) or Jagged, not {fields!r:.200}")
        where = _Rows(self, check_partition(partition_id))
        if keys is not None:
            where.keys = check_keys(keys)
            rows = len(where.keys)
        elif metadata is not None:
            where.partition = self._target(metadata, partition_id, "alloc")
            if metadata.num_padding:
                raise ValueError("alloc takes metadata without pads: metadata.unpad()")
            where.meta, where.indexes, rows = metadata, as_indexes(metadata.index_array), metadata.size
            refuse_duplicate_rows(where.indexes)
        elif batch_size is not None:
            if type(batch_size) is not int and (not isinstance(batch_size, Integral) or isinstance(batch_size, bool)):
                raise TypeError(f"batch_size must be an int, not {batch_size!r}")
            rows = int(batch_size)
        else:
            lengths = [len(spec) for spec in fields.values() if not isinstance(spec, tuple)]
            if not lengths:
                raise ValueError("alloc needs to know how many rows: keys, metadata, batch_size, or a Jagged field")
            rows = lengths[0]
        if rows < 1 or not fields:
            raise ValueError(f"alloc needs at least one row and one field, not {rows} and {len(fields)}")
        where.rows = rows
        plan = self._plan(fields, rows)
        where.timeout = timeout
        where.nbytes = plan.nbytes

        reservation = yield from self._allocated(plan, where.partition, timeout, where.selector())
        return Allocation(plan, reservation, where)

    def _allocated(
        self, plan: AllocPlan, partition: str, timeout: float | None, selector: dict[str, Any]
    ) -> Steps[Reservation]:
        def attempt(left_s: float | None) -> Steps[Reservation]:
            return self._reserve(reserved_nbytes(plan), left_s)

        # A look at the partition's limits before anything is computed; the commit is held against them, too.
        reservation = yield from self._within_limits(
            partition, timeout, attempt, nbytes=plan.nbytes, may_drop=False, **selector
        )
        assert not isinstance(reservation, NothingPut)
        return reservation

    def _commit(
        self,
        reservation: Reservation,
        layouts: list[FieldLayout],
        partition: str,
        timeout: float | None,
        nbytes: int,
        **rows: Any,
    ) -> Steps[PublishResult]:
        """Publishes what was computed in place, on `rows` (see `Store.publish`)."""
        store = self._open()

        def attempt(_left_s: float | None) -> Steps[PublishResult]:
            return store.publish(partition, reservation=reservation, fields=layouts, **rows)
            yield  # never: the room is there

        done = yield from self._within_limits(partition, timeout, attempt, nbytes=nbytes, may_drop=False, **rows)
        assert not isinstance(done, NothingPut)
        return done

    def _tags_now(self, partition: str, indexes: Indexes) -> list[dict[str, object]]:
        return self._tags_of(partition, indexes)

    def _plan(self, fields: Mapping[Any, Any], rows: int) -> AllocPlan:
        rows_before, items, last = self._last_plan
        if last is not None and rows == rows_before and len(fields) == len(items):
            # The very objects of last time, which a loop passes again: nothing is hashed or compared.
            for (key, spec), (key_before, spec_before) in zip(fields.items(), items, strict=True):
                if spec is not spec_before or key is not key_before:
                    break
            else:
                return last
        plan = plan_alloc(fields, rows)
        if plan.reusable:
            self._last_plan = (rows, tuple(fields.items()), plan)
        return plan

    async_alloc = asynchronous(alloc)


class _Rows:
    """The rows of one allocation: new ones, those of `keys`, or those of `meta`. See `TargetRows`."""

    __slots__ = ("client", "indexes", "keys", "meta", "nbytes", "partition", "rows", "timeout")

    def __init__(self, client: InPlaceCalls, partition: str) -> None:
        self.client = client
        self.partition = partition
        self.rows = 0
        self.nbytes = 0
        self.timeout: float | None = None  # of the commit, too, where limits have it wait
        self.keys: list[str] | None = None
        self.meta: BatchMeta | None = None
        self.indexes: Indexes | None = None  # those of `meta`, which may be changed meanwhile

    def room(self, nbytes: int) -> Reservation:
        return self.client._reserved(nbytes)

    def publish(self, reservation: Reservation, layouts: list[FieldLayout], tags: Any) -> PublishResult:
        encoded = encode_row_tags(tags, self.rows, check_pickles=self.client._config.unpickles_own)
        if self.keys is not None or encoded:
            metadata_room(self.client._store, self.keys or (), encoded)
        client = self.client
        steps = client._commit(
            reservation, layouts, self.partition, self.timeout, self.nbytes, **self.selector(), tags=encoded
        )
        return run_steps(client._store, steps)

    def selector(self) -> dict[str, Any]:
        """Which rows, as the store's calls take it."""
        if self.indexes is not None:
            return {"indexes": self.indexes}
        return {"count": self.rows} if self.keys is None else {"keys": self.keys}

    def metadata(self, done: PublishResult, plans: Sequence[BlockPlan], info: Mapping[str, Any], tags: Any) -> Any:
        client, meta = self.client, self.meta
        if self.keys is not None:
            answer = client._kv_meta(self.keys, self.partition, done, info)
            answer._shed_rows = done.shed_rows
            return answer
        types = _types(plans)
        tagged = tags is not None and any(tags)
        if meta is not None:
            meta._shed_rows = done.shed_rows
            meta.add_schema(types)
            meta.extra_info.update(info)
            if tagged:
                meta.custom_meta = client._tags_now(self.partition, as_indexes(meta.index_array))
            return meta
        made = new_rows_meta(client.session, self.partition, done.indexes, types)
        made._shed_rows = done.shed_rows
        if info:
            made.extra_info = dict(info)
        if tagged:
            made.custom_meta = tags
        return made


def _types(plans: Sequence[BlockPlan]) -> dict[str, FieldSchema]:
    """What metadata says of the fields, in a dict of the caller's own."""
    found: dict[str, FieldSchema] = {}
    for plan in plans:
        if plan.types is None:
            plan.types = schemas_of(plan.schemas)
        found.update(plan.types)
    return found
