"""One process leads a save or load of all nodes: each step on all at once, and the end on all whatever happened."""

from __future__ import annotations

import contextlib
import time
import types
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import Any

from transferqueue.errors import TransferQueueError
from transferqueue.nodes.link import NodeLink

_MOST_THREADS = 32
_ATTEMPT_S = 10.0
_END_S = 10.0


class CheckpointLeader:
    """A context manager, at whose end the nodes let go of what they hold for it.

    Args:
        link: of this process.
        ordinals: of the nodes.

    Attributes:
        key: names the save or load.
        ordinals: as given.
    """

    def __init__(self, link: NodeLink, ordinals: Sequence[int]) -> None:
        self._link = link
        self.ordinals = list(ordinals)
        self.key = uuid.uuid4().hex

    def each(self, step: str, args: Callable[[int], Mapping[str, Any]] = lambda ordinal: {}) -> dict[int, Any]:
        """One step on all nodes, at once: ordinal -> what its agent answers. A step takes the time that it takes: a
        node that does not answer is waited for until it is known to be lost.

        Raises:
            what the first node raises. DataLostError: a node is lost. NodeUnreachableError: its agent was started again
            meanwhile.
        """
        with self._threads() as pool:
            jobs: dict[Future[Any], int] = {
                pool.submit(self._call, ordinal, step, args(ordinal)): ordinal for ordinal in self.ordinals
            }
            try:
                return {jobs[job]: job.result() for job in as_completed(jobs)}
            except BaseException:
                self.end()  # nodes that are still at it stop
                raise

    def outcomes(self, step: str, args: Mapping[str, Any]) -> dict[int, BaseException | None]:
        """`each` of a step that is not stopped when it fails on some node: ordinal -> its error."""
        with self._threads() as pool:
            jobs = {ordinal: pool.submit(self._call, ordinal, step, args) for ordinal in self.ordinals}
            return {ordinal: job.exception() for ordinal, job in jobs.items()}

    def end(self) -> None:
        """On all nodes. What a node is not told it finds out by itself after a minute. Idempotent."""
        until_s = time.monotonic() + _END_S

        def end(ordinal: int) -> None:
            with contextlib.suppress(TransferQueueError):
                self._link.call(ordinal, "checkpoint.end", {"id": self.key}, until_s=until_s)

        with self._threads() as pool:
            list(pool.map(end, self.ordinals))

    def _threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(min(len(self.ordinals), _MOST_THREADS), "transferqueue-checkpoint")

    def _call(self, ordinal: int, step: str, args: Mapping[str, Any]) -> Any:
        sent = {"id": self.key, **args}
        return self._link.call(ordinal, f"checkpoint.{step}", sent, until_s=None, attempt_s=_ATTEMPT_S)

    def __enter__(self) -> CheckpointLeader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        self.end()
