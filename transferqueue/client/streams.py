"""What streams of rows ask of a partition between their fetches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from transferqueue.client.coalescing import CoalesceCalls
from transferqueue.errors import TransferQueueError
from transferqueue.waiting import Steps, wait_until

R = TypeVar("R")


@dataclass(frozen=True)
class TaskProgress:
    """How far a task is with a partition.

    Attributes:
        consumed: rows since its consumption was reset; None: there is no such partition.
        ready: rows that have the fields and that the task may be given.
        repeated: the sampler has an answer for the sampling configuration already.
    """

    consumed: int | None
    ready: int
    repeated: bool


class StreamCalls(CoalesceCalls):
    """Part of `TransferQueueClient`."""

    def _consumed_rows(self, partition: str, task: str) -> int | None:
        return self._open().consumed_rows(partition, task)

    def _progress(
        self, partition: str, task: str, fields: Sequence[str], sampling: Mapping[str, Any] | None
    ) -> TaskProgress:
        """`sampling` None: no batch of that kind is meant."""
        snapshot = self._open().task_snapshot(partition, task, list(fields))
        repeated = sampling is not None and self._sampler_run(snapshot).has_cached_result(sampling)
        return TaskProgress(self._consumed_rows(partition, task), len(snapshot.ready), repeated)

    def _until(
        self,
        partition: str,
        until_s: float | None,
        look: Callable[[], R | None],
        too_late: Callable[[], TransferQueueError],
        longest_s: float,
    ) -> Steps[R]:
        """Steps that end with the first result of `look` that is not None; see `wait_until`."""
        return wait_until(self._open(), partition, until_s, look, too_late, longest_s)
