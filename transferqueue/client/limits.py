"""Limits of partitions: set, shown, and waited at by the calls that put."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from transferqueue.aio import asynchronous
from transferqueue.client.core import ClientCore, Indexes, as_indexes, check_partition
from transferqueue.errors import LimitExceededError, LimitTimeoutError
from transferqueue.partition_limits import PartitionLimits, check_setting
from transferqueue.waiting import Sleep, Steps, deadline, is_over, lock_timeout

if TYPE_CHECKING:
    from transferqueue._native import PublishResult

R = TypeVar("R")

_UNCHANGED: Any = type("Unchanged", (), {"__repr__": lambda self: "<unchanged>"})()
_MOST_NAMES = 4096


@dataclass(frozen=True)
class NothingPut:
    """In the place of a `PublishResult`: a put of new rows that were too old, which 'shed' drops."""

    shed_rows: int

    @property
    def indexes(self) -> Indexes:
        """No row."""
        return as_indexes([])


class LimitCalls(ClientCore):
    """Part of `TransferQueueClient`."""

    # (epoch, partition -> whether it has limits): what was seen holds while the store's epoch is the same.
    _limits_seen: tuple[int, dict[str, bool]] = (0, {})

    def set_limits(
        self,
        partition_id: str,
        *,
        max_bytes: int | str | None = _UNCHANGED,
        max_unconsumed_rows: int | None = _UNCHANGED,
        max_version_lag: int | None = _UNCHANGED,
        consumers: str | list[str] | tuple[str, ...] | None = _UNCHANGED,
        when_exceeded: str = _UNCHANGED,
        remove: bool = False,
    ) -> None:
        """Limits what partitions may hold, for all processes of the session, from now on. What is there already stays;
        puts meet it.

        A setting that is not given stays as it is; where several names and patterns match a partition, each setting is
        that of the most specific one that says something about it: its own name, then the longest pattern.

        Args:
            partition_id: a name, or a pattern in which ``*`` stands for anything. Partitions to come are meant too.
            max_bytes: payload that the partition's rows may name, as bytes or text ("4GiB"); None: no limit.
            max_unconsumed_rows: rows, with data or without, that may wait to be consumed; None: no limit.
            max_version_lag: by how much the tag ``weight_version`` (an int) of a row that waits may be below the
                newest one; None: no limit. Rows without the tag have no age.
            consumers: a row waits until all these tasks consumed it, or acknowledged their claims on it; none: until
                any task did.
            when_exceeded: "wait" (the put waits for consumption and clears up to its timeout), "shed" (the oldest rows
                that no task was given and nobody has claimed are removed in the same step) or "raise".
            remove: what was said of exactly this name or pattern is forgotten; less specific ones hold again. (None
                instead says that there is no limit, whatever they say.)

        Raises:
            ValueError: a bad value, or a setting beside `remove`.
        """
        given = {
            "max_bytes": max_bytes,
            "max_unconsumed_rows": max_unconsumed_rows,
            "max_version_lag": max_version_lag,
            "consumers": [consumers] if isinstance(consumers, str) else consumers,
            "when_exceeded": when_exceeded,
        }
        settings = {name: check_setting(name, value, name) for name, value in given.items() if value is not _UNCHANGED}
        if remove and settings:
            raise ValueError(f"set_limits: remove=True takes no settings, and {', '.join(settings)} came with it")
        if remove:
            self._open().remove_limits(check_partition(partition_id))
            return
        self._open().set_limits(check_partition(partition_id), settings)

    def get_limits(self, partition_id: str) -> PartitionLimits:
        """What holds for a partition, and what is there; for one that does not exist, what it would get."""
        return PartitionLimits.of(self._open().limit_report(check_partition(partition_id)))

    def set_weight_version(self, partition_id: str, version: int) -> None:
        """Says which version the trainer's weights have now, so that rows age although nobody puts newer ones.

        Until then the newest version is the largest ``weight_version`` that was put. It may also be lower than what was
        said or put before, for instance after a checkpoint was loaded. Nothing where no ``max_version_lag`` holds.
        """
        if isinstance(version, bool) or not isinstance(version, int):
            raise TypeError(f"version must be an int, not {version!r}")
        self._open().set_weight_version(check_partition(partition_id), version)

    def _put_deadline(self, timeout: float | None) -> float | None:
        """Monotonic time at which a put gives up; `timeout` None: after ``put.timeout_s``."""
        return deadline(self._config.put.timeout_s if timeout is None else timeout)

    def _has_limits(self, partition: str) -> bool:
        epoch = self._store.limit_epoch
        if epoch == 0:
            return False
        seen = self._limits_seen
        if seen[0] != epoch:
            self._limits_seen = seen = (epoch, {})
        known = seen[1].get(partition)
        if known is None:
            if len(seen[1]) >= _MOST_NAMES:
                seen[1].clear()
            known = seen[1][partition] = PartitionLimits.of(self._store.limit_report(partition)).any
        return known

    def _within_limits(
        self,
        partition: str,
        timeout: float | None,
        attempt: Callable[[float | None], Steps[R]],
        *,
        nbytes: int = 0,
        may_drop: bool = True,
        **rows: Any,
    ) -> Steps[R | NothingPut]:
        """Makes the `attempt` to publish (its argument: seconds left), where limits say so again after what they wait
        for.

        Raises:
            LimitExceededError: what it means is in `partition_limits`; `LimitTimeoutError` after waiting.
        """
        if not self._has_limits(partition):
            try:
                return (yield from attempt(timeout))
            except LimitExceededError:
                pass  # set at this moment
        timeout_s = self._config.put.timeout_s if timeout is None else timeout
        until_s = deadline(timeout_s)
        began_s = time.monotonic()
        waited = False
        while True:
            over = is_over(until_s)
            sleep = Sleep.before_look(self._store, partition, until_s)
            try:
                self._store.look_at_limits(partition, nbytes=nbytes, **rows)
                done = yield from attempt(None if until_s is None else max(0.0, until_s - time.monotonic()))
            except LimitExceededError as error:
                if may_drop and (dropped := self._dropped(error, partition, rows)):
                    return dropped
                if error.never or error.when_exceeded != "wait":
                    self._store.count_limit(waited=waited, refused=True)
                    raise
                if over:
                    self._store.count_limit(waited=waited, refused=True)
                    raise LimitTimeoutError(
                        f"waited {time.monotonic() - began_s:.1f} s: {error.message}",
                        **error.details,
                        timeout_s=timeout_s,
                        missing=error.limit,
                    ) from None
            else:
                if waited:
                    self._store.count_limit(waited=True)
                return done
            waited = True
            yield sleep

    def _named(self, timeout: float | None, partition: str, **rows: Any) -> Steps[PublishResult | NothingPut]:
        """Rows without data, and tags, published within the partition's limits."""

        def attempt(left_s: float | None) -> Steps[PublishResult]:
            return self._store.publish(partition, lock_timeout_s=lock_timeout(self._put_deadline(left_s)), **rows)
            yield  # never: nothing to wait for

        return (yield from self._within_limits(partition, timeout, attempt, **rows))

    def _dropped(self, error: LimitExceededError, partition: str, rows: dict[str, Any]) -> NothingPut | None:
        """What a put of rows that are too old comes to where limits say 'shed'; None when it is an error: some of its
        rows exist already, and whoever holds them would take them for written."""
        if not error.never or error.when_exceeded != "shed" or error.limit != "max_version_lag":
            return None
        count: int = rows.get("count", 0)
        if keys := rows.get("keys"):
            found, indexes = self._store.find_keys(partition, keys)
            count = 0 if found and (indexes >= 0).any() else len(keys)
        if not count:
            return None
        self._store.count_limit(shed_rows=count)
        return NothingPut(count)

    async_set_limits = asynchronous(set_limits)
    async_get_limits = asynchronous(get_limits)
    async_set_weight_version = asynchronous(set_weight_version)
