"""Streams of partitions whose home is another node."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from transferqueue.client.away_reads import AwayReadCalls
from transferqueue.client.streams import TaskProgress
from transferqueue.errors import TransferQueueError
from transferqueue.nodes.link import WAIT_SLICE_S
from transferqueue.waiting import Steps, is_over, run_steps

R = TypeVar("R")


class AwayStreamCalls(AwayReadCalls):
    """Part of `ClusterClient`."""

    def _consumed_rows(self, partition: str, task: str) -> int | None:
        return self._progress(partition, task, [], None).consumed

    def _progress(
        self, partition: str, task: str, fields: Sequence[str], sampling: Mapping[str, Any] | None
    ) -> TaskProgress:
        self._open()
        return run_steps(self._store, self._progress_steps(partition, task, fields, sampling))

    def _progress_steps(
        self, partition: str, task: str, fields: Sequence[str], sampling: Mapping[str, Any] | None
    ) -> Steps[TaskProgress]:
        home = yield from self._home(partition, create=True)
        if self.link.is_here(home):
            consumed = super()._consumed_rows(partition, task)
            if not fields:
                return TaskProgress(consumed, 0, False)
            return super()._progress(partition, task, fields, sampling)
        assert home is not None  # narrowing: it was created
        args = {
            "partition": partition,
            "task": task,
            "fields": list(fields),
            "sampling": None if sampling is None else dict(sampling),
        }
        answer = yield from self._at_home(partition, home, "rows.progress", args, self.link.until(None))
        return TaskProgress(*answer)

    def _until(
        self,
        partition: str,
        until_s: float | None,
        look: Callable[[], R | None],
        too_late: Callable[[], TransferQueueError],
        longest_s: float,
    ) -> Steps[R]:
        home = yield from self._home(partition, create=True)
        if self.link.is_here(home):
            return (yield from super()._until(partition, until_s, look, too_late, longest_s))
        assert home is not None  # narrowing: it was created
        seen = -1
        while True:
            over = is_over(until_s)
            # What changed since the version that the home says here is not missed: it is compared there.
            args = {"partition": partition, "seen": seen, "timeout": 0.0}
            if seen < 0:  # before the first look
                seen = yield from self._at_home(partition, home, "rows.changed", args, self.link.until(None))
            result = look()
            if result is not None:
                return result
            if over or is_over(until_s):
                raise too_late()
            left_s = longest_s if until_s is None else min(longest_s, max(0.0, until_s - time.monotonic()))
            args = {"partition": partition, "seen": seen, "timeout": min(left_s, WAIT_SLICE_S)}
            seen = yield from self._at_home(partition, home, "rows.changed", args, self.link.until(None))
