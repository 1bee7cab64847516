"""Puts into partitions whose home is another node: the payload stays here, the home is told under which names.

Two steps. (1) The payload is published in the own node's store, as new rows of the hidden partition `PAYLOAD`, whose
indexes are its names. Nobody knows them yet. (2) One call has the home publish, in one transaction of its own, the
rows with stubs that hold these names, their keys, tags and limits. So a put is seen whole or not at all, by everybody,
from that commit on; and whoever sees a stub finds the payload, which was there before.

A put that fails for good forgets its names. One that does not know (its call was not answered in time; it was killed)
leaves them: the node's agent clears names that no home knows, after a while in which the put may still be under way
(`InFlight`).
"""

from __future__ import annotations

import contextlib
import functools
import time
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from transferqueue.allocation import give_up, reserved_nbytes
from transferqueue.client.core import Indexes
from transferqueue.client.limits import NothingPut
from transferqueue.client.routed_calls import RoutedCalls, retitled
from transferqueue.codec import PutPlan
from transferqueue.errors import (
    DataLostError,
    LimitTimeoutError,
    NodeUnreachableError,
    StorageFullError,
)
from transferqueue.metadata import KVBatchMeta
from transferqueue.nodes.errors import NotHomeError
from transferqueue.nodes.payload import GRACE_S, InFlight, PayloadStore
from transferqueue.nodes.published import Published
from transferqueue.waiting import Steps, away, is_over, lock_timeout, run_steps

if TYPE_CHECKING:
    from transferqueue._native import FieldLayout, PublishResult, Reservation
    from transferqueue.codec import AllocPlan
    from transferqueue.nodes.stubs import StubPlan

_ATTEMPTS_S = GRACE_S / 4


class AwayWriteCalls(RoutedCalls):
    """Part of `ClusterClient`."""

    _payload: PayloadStore

    def _stored(
        self, plan: PutPlan | StubPlan, timeout: float | None, partition: str, *, may_drop: bool = True, **rows: Any
    ) -> Steps[PublishResult | NothingPut]:
        home = yield from self._home(partition, create=True)
        if self.link.is_here(home):
            return (yield from self._here(super()._stored(plan, timeout, partition, may_drop=may_drop, **rows)))
        reservation = yield from self._reserve(plan.nbytes, timeout, ahead=True)
        try:
            plan.write(reservation)
            return (yield from self._published_away(reservation, plan.layouts, partition, timeout, rows, drop=may_drop))
        except BaseException:
            give_up(reservation)
            raise

    def _reserve(self, nbytes: int, timeout: float | None, *, ahead: bool = False) -> Steps[Reservation]:
        return self._here(super()._reserve(nbytes, timeout, ahead=ahead))

    def _named(self, timeout: float | None, partition: str, **rows: Any) -> Steps[PublishResult | NothingPut]:
        home = yield from self._home(partition, create=True)
        if self.link.is_here(home):
            return (yield from self._here(super()._named(timeout, partition, **rows)))
        done: PublishResult | NothingPut = yield from self._told_home(partition, timeout, rows, {}, None)
        return done

    def _allocated(
        self, plan: AllocPlan, partition: str, timeout: float | None, selector: dict[str, Any]
    ) -> Steps[Reservation]:
        home = yield from self._home(partition, create=True)
        if self.link.is_here(home):
            return (yield from super()._allocated(plan, partition, timeout, selector))
        # Limits are looked at when it is committed.
        return (yield from self._reserve(reserved_nbytes(plan), timeout))

    def _commit(
        self,
        reservation: Reservation,
        layouts: list[FieldLayout],
        partition: str,
        timeout: float | None,
        nbytes: int,
        **rows: Any,
    ) -> Steps[PublishResult]:
        home = yield from self._home(partition, create=True)
        if self.link.is_here(home):
            stored = super()._commit(reservation, layouts, partition, timeout, nbytes, **rows)
            return (yield from self._here(stored))
        done: Any = yield from self._published_away(reservation, layouts, partition, timeout, rows, drop=False)
        return done  # type: ignore[no-any-return]

    def _published_away(
        self,
        reservation: Reservation,
        layouts: list[FieldLayout],
        partition: str,
        timeout: float | None,
        rows: dict[str, Any],
        *,
        drop: bool = True,
    ) -> Steps[PublishResult | NothingPut]:
        limit_s = lock_timeout(self._put_deadline(timeout))
        with self.link.naming_full(self.link.ordinal):
            payload = self._payload.publish(_count(rows), reservation, layouts, limit_s)
        schemas = {layout.name: layout.schema for layout in layouts}
        try:
            done: PublishResult | NothingPut = yield from self._told_home(
                partition, timeout, rows, schemas, payload, drop=drop
            )
        except (NodeUnreachableError, DataLostError):
            raise  # the home may have done it, or be about to: the names are left to the sweep
        except Exception:
            self._payload.discard(payload.names)
            raise
        if not len(done.indexes):
            self._payload.discard(payload.names)
        return done

    def _told_home(
        self,
        partition: str,
        timeout: float | None,
        rows: dict[str, Any],
        schemas: Mapping[str, bytes],
        payload: InFlight | None,
        *,
        drop: bool = True,
    ) -> Steps[Any]:
        """The second step, with the home waiting for room and within limits, a slice at a time."""
        until_s = self._put_deadline(timeout)
        timeout_s = self._config.put.timeout_s if timeout is None else timeout
        while True:
            args = {
                "partition": partition,
                "rows": {name: value for name, value in rows.items() if value is not None},
                "schemas": dict(schemas),
                "names": None if payload is None else payload.names,
                "nbytes": None if payload is None else payload.nbytes,
                "drop": drop,
                "timeout": self.link.wait_slice(until_s),
            }
            call = functools.partial(self._tell, partition, args, self.link.until(until_s), payload)
            try:
                done: Published = yield from away(call)
            except LimitTimeoutError as error:
                if is_over(until_s):
                    raise retitled(error, timeout_s) from None
                continue
            except StorageFullError as error:
                if error.resource != "payload" or is_over(until_s):
                    raise
                continue
            done.indexes.flags.writeable = False  # as those of the store are
            return done if len(done.indexes) or not done.shed_rows else _Dropped(done.shed_rows)

    def _tell(self, partition: str, args: dict[str, Any], until_s: float, payload: InFlight | None) -> Published:
        """One call, made again with the same id until `until_s`: it is applied once. Before each attempt the payload is
        said to be still wanted, since the node clears what no home knows."""
        request_id = uuid.uuid4().bytes
        moves = 0
        while True:
            if payload is not None:
                payload.keep()
            home = self.link.home_of(partition, create=True)
            assert home is not None  # narrowing: it is created
            attempt_s = min(until_s, time.monotonic() + _ATTEMPTS_S)
            try:
                done: Published = self.link.call(
                    home, "rows.publish", args, until_s=attempt_s, request_id=request_id, attempt_s=_ATTEMPTS_S
                )
                return done
            except NodeUnreachableError:
                if time.monotonic() >= until_s:
                    raise
                with contextlib.suppress(NodeUnreachableError):
                    self.link.heir_of(partition, home)  # it may stand still, and count as lost by now
            except DataLostError as error:
                if error.rows or self.link.heir_of(partition, home, self.link.until(until_s)) is None:
                    raise
            except NotHomeError:
                self.link.forget_home(partition)
                moves += 1
                if moves > 5:
                    raise

    def _merge_tags(self, partition: str, indexes: Indexes, encoded: list[bytes]) -> Steps[None]:
        home = yield from self._home(partition, create=False)
        if home is None or self.link.is_here(home):
            return (yield from self._here(super()._merge_tags(partition, indexes, encoded)))
        args = {"partition": partition, "indexes": indexes, "tags": encoded}
        yield from self._at_home(partition, home, "rows.merge_tags", args, self.link.until(None))

    def _status_of(self, partition: str, fields: list[str], indexes: Indexes) -> Steps[Any]:
        home = yield from self._home(partition, create=False)
        if home is None or self.link.is_here(home):
            return (yield from super()._status_of(partition, fields, indexes))
        args = {"partition": partition, "fields": fields, "indexes": indexes}
        return (yield from self._at_home(partition, home, "rows.status", args, self.link.until(None)))

    def _tags_now(self, partition: str, indexes: Indexes) -> list[dict[str, object]]:
        home = self.link.home_of(partition, create=False)
        if home is None or self.link.is_here(home):
            return super()._tags_now(partition, indexes)
        args = {"partition": partition, "indexes": indexes}
        found: list[dict[str, object]] = run_steps(
            self._store, self._at_home(partition, home, "rows.tags", args, self.link.until(None))
        )
        return found

    def _kv_meta(
        self,
        keys: list[str],
        partition: str,
        done: Any,
        info: Mapping[str, Any] | None = None,
    ) -> KVBatchMeta:
        if not isinstance(done, (Published, _Dropped)):
            return super()._kv_meta(keys, partition, done, info)
        fields, tags = (done.fields, done.tags) if isinstance(done, Published) else (None, None)
        return KVBatchMeta(
            keys=keys,
            tags=tags or [],
            partition_id=partition,
            fields=sorted(fields or []),
            extra_info=dict(info or {}),
            session=self.session,
        )


class _Dropped(NothingPut):
    """A put that the home's limits dropped."""


def _count(rows: Mapping[str, Any]) -> int:
    for name in ("indexes", "keys"):
        if rows.get(name) is not None:
            return len(rows[name])
    return int(rows["count"])
