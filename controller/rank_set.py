"""The ranks of one start, whatever they are: what every view of them shares."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from transferqueue.controller.collect import RankFacts
from transferqueue.controller.errors import WorkerDiedError, WorkerGroupDeadError


class RankSet(ABC):
    """Any number of groups (slices, colocated roles) are views of one set. A rank that dies is noted here, so that
    every view is dead. A set knows no methods: which ones a view shows, and what they are called on the rank, is the
    view's.

    Args:
        ranks: what is known of each rank, in rank order, for messages.
    """

    def __init__(self, ranks: Sequence[RankFacts]) -> None:
        self.ranks = list(ranks)
        self._dead: WorkerGroupDeadError | None = None

    @property
    def world_size(self) -> int:
        return len(self.ranks)

    @property
    def is_dead(self) -> bool:
        """Whether a rank died or the ranks were stopped."""
        return self._dead is not None

    def check_alive(self, method: str) -> None:
        """Raises `WorkerGroupDeadError` when `method` is not to be sent."""
        if self._dead is not None:
            raise WorkerGroupDeadError(f"{method} was not sent: {self._dead.message}", **self._dead.details)

    def mark_dead(self, death: WorkerDiedError) -> None:
        """From now on every view refuses calls, with the first death as the reason."""
        if self._dead is None:
            self._dead = WorkerGroupDeadError(
                f"the worker group is dead: {death.message}", **{**death.details, "cause": death}
            )

    def mark_stopped(self) -> None:
        """From now on every view refuses calls."""
        self._dead = WorkerGroupDeadError("the worker group was shut down", reason="shut down")

    @abstractmethod
    def stop(self) -> None:
        """Ends the ranks and gives back the room that they took. Idempotent."""
