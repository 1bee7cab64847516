"""At-least-once delivery: rows are consumed when the consumer says so, and offered again when it does not."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from transferqueue.aio import asynchronous
from transferqueue.claims import Claim
from transferqueue.client.arguments import check_options, check_task
from transferqueue.client.choosing import ChoiceCalls, Wanted, Way
from transferqueue.client.core import Indexes, as_indexes, check_names, check_partition
from transferqueue.client.row_meta import batch_meta
from transferqueue.errors import StaleMetadataError, TransferTimeoutError, name_some
from transferqueue.waiting import Steps, blocking, deadline, lock_timeout, wait_until

if TYPE_CHECKING:
    from transferqueue._native import Store, TaskSnapshot


class _Claiming(Way[tuple[int, float]]):
    def __init__(self, store: Store, lease_s: float, until_s: float | None) -> None:
        self._store = store
        self._lease_s = lease_s
        self.until_s = until_s

    def take(self, wanted: Wanted, snapshot: TaskSnapshot, rows: Indexes, state: bytes) -> tuple[int, float] | None:
        return self._store.claim(
            wanted.partition,
            wanted.task,
            snapshot.task_version,
            wanted.fields,
            rows,
            state,
            self._lease_s,
            lock_timeout_s=lock_timeout(self.until_s),
        )

    def repeat(self, snapshot: TaskSnapshot, sampled: list[int], consumed: list[int]) -> list[int] | None:
        elsewhere = set(consumed) - set(snapshot.ready.tolist())
        if not elsewhere:
            return consumed
        if elsewhere & set(snapshot.claimed.tolist()):
            return None  # they may come back
        rows = sorted(elsewhere)
        raise StaleMetadataError(
            "the sampler keeps these rows for this sampling configuration, and the task has consumed them or they were "
            f"cleared: global indexes {name_some(rows)}. Ask for the next batch, or reset the consumption of the task",
            rows=tuple(rows),
        )


class ClaimCalls(ChoiceCalls):
    """Part of `TransferQueueClient`."""

    @blocking
    def claim(
        self,
        task_name: str,
        partition_id: str,
        *,
        fields: str | Sequence[str],
        batch_size: int,
        lease_s: float,
        timeout: float | None = 0.0,
        sampling: Mapping[str, Any] | None = None,
        partial: bool = False,
    ) -> Steps[Claim]:
        """Takes rows for a task without consuming them yet.

        Until the claim ends nobody else of the task gets its rows, neither by `claim` nor by `get_meta` or `wait`.
        `ack` makes them consumed. They are offered again at once when they are given back (`nack`) and when this
        process dies or closes the session, and after `lease_s` when nothing is heard of it. So every row is delivered
        at least once; twice, when a consumer dies between its work and its `ack`.

        Args:
            task_name: who consumes; tasks are independent of each other.
            partition_id: may not exist yet.
            fields: names; every row has all of them.
            batch_size: number of rows.
            lease_s: seconds that the claim lasts unless it is extended.
            timeout: seconds to wait for the rows; 0 to look once, None for ever.
            sampling: passed to the session's sampler as keyword arguments.
            partial: takes fewer rows than `batch_size` rather than wait, as soon as there is one.

        Returns:
            The claim. Its metadata is empty when nothing came in time.

        Raises:
            StaleMetadataError: a sampler that keeps its answers (by `dp_rank` and `batch_index`) keeps rows for this
                `sampling` that the task has consumed.
            ValueError, TypeError: a wrong argument.
        """
        store, partition = self._open(), check_partition(partition_id)
        if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size < 1:
            raise ValueError(f"batch_size must be an int >= 1, not {batch_size!r}")
        task, seconds = check_task(task_name), _check_lease(lease_s)
        names = check_names(fields, "fields")
        options = check_options(sampling, "sampling")
        wanted = Wanted(partition, task, names, batch_size, 1 if partial else batch_size, options)
        until_s = deadline(timeout)
        way = _Claiming(store, seconds, until_s)
        next_lapse_s: float | None = None

        def look() -> Claim | None:
            nonlocal next_lapse_s
            found = self._choose(wanted, way)
            next_lapse_s = found.snapshot.next_lapse_s
            if found.chosen is None:
                return None
            meta, (fencing, deadline_s) = found.chosen
            return Claim(meta, task, partition, fencing, seconds, deadline_s)

        try:
            return (yield from wait_until(store, partition, until_s, look, _TooLate, changes_in_s=lambda: next_lapse_s))
        except _TooLate:
            nothing = batch_meta(self.session, partition, as_indexes([]), {}, ready=False)
            return Claim(nothing, task, partition, 0, seconds, 0.0)

    def ack(self, claim: Claim) -> None:
        """The rows of a claim are done with: consumed. Those of an empty one are none.

        Raises:
            StaleMetadataError: the claim is over (see `Claim`); its rows may be somebody else's. Nothing is changed.
            TransferTimeoutError: a process that stands still kept the session's write lock for 30 s; names it. The
                claim stands.
        """
        self._finish(claim, "ack", consumed=True)

    def nack(self, claim: Claim) -> None:
        """Gives the rows of a claim back: they are offered again at once, and who waits for rows is woken.

        Raises:
            StaleMetadataError, TransferTimeoutError: as in `ack`.
        """
        self._finish(claim, "nack", consumed=False)

    def extend(self, claim: Claim, lease_s: float) -> None:
        """The claim lasts `lease_s` seconds from now, and belongs to this process from now on; `claim` is updated.

        Raises:
            StaleMetadataError, TransferTimeoutError: as in `ack`.
        """
        store = self._open_for(claim, "extend")
        seconds = _check_lease(lease_s)
        if claim:
            claim.deadline_s = store.extend_claim(claim.partition_id, claim.task_name, claim.fencing, seconds)
            claim.lease_s = seconds

    def _finish(self, claim: Claim, what: str, *, consumed: bool) -> None:
        store = self._open_for(claim, what)
        if claim:
            store.finish_claim(claim.partition_id, claim.task_name, claim.fencing, consumed)

    def _open_for(self, claim: Claim, what: str) -> Store:
        if not isinstance(claim, Claim):
            raise TypeError(f"{what} takes a Claim, not {type(claim).__name__}")
        store = self._open()
        self._check_session(claim.meta)
        return store

    async_claim = asynchronous(claim)
    async_ack = asynchronous(ack)
    async_nack = asynchronous(nack)
    async_extend = asynchronous(extend)


class _TooLate(TransferTimeoutError):
    """Nothing came in time: for a claim that is an answer."""


def _check_lease(lease_s: Any) -> float:
    if isinstance(lease_s, bool) or not isinstance(lease_s, numbers.Real):
        raise TypeError(f"lease_s must be seconds, not {lease_s!r}")
    try:
        seconds = float(lease_s)
    except OverflowError:
        seconds = math.inf
    if not (seconds > 0 and math.isfinite(seconds)):
        raise ValueError(f"lease_s must be a number of seconds > 0, not {lease_s!r}")
    return seconds
