"""The ranks of one start, whatever they are: what every view of them shares."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from transferqueue.controller.death_report import death_of
from transferqueue.controller.errors import WorkerDiedError, WorkerGroupDeadError
from transferqueue.controller.rank_facts import RankFacts, RankState

if TYPE_CHECKING:
    from transferqueue.controller.aliveness import AlivenessCheck
    from transferqueue.controller.describe.rank_report import RankReport
    from transferqueue.controller.describe.trace import Trace
    from transferqueue.controller.pools.pool_facts import PoolFacts


class RankSet(ABC):
    """Any number of groups (slices, colocated roles) are views of one set. A rank that dies is noted here, so that
    every view is dead. A set knows no methods: which ones a view shows, and what they are called on the rank, is the
    view's.

    Args:
        ranks: what is known of each rank, in rank order, for messages.
    """

    def __init__(self, ranks: Sequence[RankFacts]) -> None:
        self.ranks = list(ranks)
        self.traces: list[Trace] = []
        """What is told of each call."""
        self.names: list[str] = []
        """What the actors are called in the cluster; empty where there are none."""
        self.death: WorkerDiedError | None = None
        """The first death that was noticed."""
        self.is_death_told = False
        """Whether a caller got an error because of it."""
        self.is_stopped = False
        self.check: AlivenessCheck | None = None

    @property
    def world_size(self) -> int:
        return len(self.ranks)

    @property
    def is_dead(self) -> bool:
        """Whether a rank died or the ranks were stopped."""
        return self.is_stopped or self.death is not None

    def check_alive(self, method: str) -> None:
        """Raises `WorkerGroupDeadError` when `method` is not to be sent."""
        if self.death is not None:
            self.is_death_told = True
            raise WorkerGroupDeadError(
                f"{method} was not sent: the worker group is dead: {self.death.message}",
                **{**self.death.details, "cause": self.death},
            )
        if self.is_stopped:
            raise WorkerGroupDeadError(f"{method} was not sent: the worker group was shut down", reason="shut down")

    def mark_dead(self, death: WorkerDiedError) -> None:
        """From now on every view refuses calls, with the first death as the reason."""
        if self.death is None and not self.is_stopped:
            self.death = death

    def tell(self, death: WorkerDiedError) -> NoReturn:
        """`mark_dead`, and raises it."""
        self.mark_dead(death)
        self.is_death_told = True
        raise death

    def look(self, states: Sequence[RankState] | None = None) -> WorkerDiedError | None:
        """The death of a rank, noted; found with one query of `states` when it is not known yet."""
        if self.death is None and not self.is_stopped:
            for facts, state in zip(self.ranks, self.states() if states is None else states, strict=True):
                if state.state == "dead" and not self.is_stopped:
                    self.mark_dead(death_of(facts, None, state.cause))
                    break
        return self.death

    @abstractmethod
    def states(self) -> list[RankState]:
        """Which ranks live, in rank order; one query for all of them."""

    @property
    def master(self) -> tuple[str, str] | None:
        """Address and port of the rendezvous; None where there is none."""
        return None

    @abstractmethod
    def reports(self, positions: Sequence[int], role: str | None, timeout_s: float) -> dict[int, RankReport]:
        """What ranks say of themselves, by position; those that say nothing within `timeout_s` are left out. With
        `role`, on the meshes of that role of colocated workers."""

    def earlier_report(self, position: int, role: str | None) -> tuple[float, RankReport] | None:
        """The age in seconds of what a rank said last, and that; None when it never said anything."""
        return None

    def running(self, positions: Sequence[int]) -> dict[int, str]:
        """By position, the method that a rank is running, as seen without its help; those not seen are left out."""
        return {}

    def pool_facts(self) -> PoolFacts | None:
        """What the ranks run in; None for ranks that are in no pool of this program."""
        return None

    @abstractmethod
    def stop(self) -> None:
        """Ends the ranks and gives back the room that they took. Idempotent."""
