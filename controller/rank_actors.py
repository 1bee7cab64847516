"""The Ray actors of one start."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from transferqueue.controller.actor_start import GroupStart
from transferqueue.controller.actor_states import actor_states
from transferqueue.controller.actor_stop import DEAD_GROUP_GRACE_S, GRACE_S, stop_actors
from transferqueue.controller.collect import gather
from transferqueue.controller.describe.rank_report import RankReport, rank_report
from transferqueue.controller.describe.rank_reports import Key, RankReports
from transferqueue.controller.describe.running_calls import running_calls
from transferqueue.controller.detached_actors import DetachedActors
from transferqueue.controller.errors import WorkerDiedError, WorkerGroupDeadError
from transferqueue.controller.pools.placement import remove_groups
from transferqueue.controller.pools.pool_facts import PoolFacts
from transferqueue.controller.pools.ray_resource_pool import RayResourcePool
from transferqueue.controller.rank_facts import RankFacts, RankState
from transferqueue.controller.rank_set import RankSet
from transferqueue.controller.ray_class import RayClassWithInitArgs
from transferqueue.controller.start_options import StartOptions
from transferqueue.workers.ray_runtime import require_ray


class RankActors(RankSet):
    """The Ray actors behind a `RayWorkerGroup` and behind every view of it.

    Args:
        handles: the actors in rank order.
        ranks: what is known of each, for messages.
        master: address and port of the rendezvous.
        pool: where they run, which counts this object as a user; None for actors that another program started.
        names: the actors' names in the cluster.
        placement_groups: where they run, of actors that another program started.
    """

    def __init__(
        self,
        handles: Sequence[Any],
        ranks: Sequence[RankFacts],
        master: tuple[str, str],
        pool: RayResourcePool | None = None,
        names: Sequence[str] = (),
        placement_groups: Sequence[Any] = (),
    ) -> None:
        super().__init__(ranks)
        self._ray = require_ray("RayWorkerGroup")
        self.handles = list(handles)
        self._master = master
        self._reports = RankReports()
        self.pool = pool
        self.names = list(names)
        self._placement_groups = list(placement_groups)

    @classmethod
    def start(
        cls,
        pool: RayResourcePool,
        class_with_args: RayClassWithInitArgs,
        options: StartOptions,
        strategy: str = "STRICT_PACK",
    ) -> RankActors:
        """One actor per rank of the pool, each with its worker built. Nothing of it is left when it fails.

        `ValueError` for detached actors on a pool that ends with this program.
        """
        if options.detached and not pool.detached:
            raise ValueError(
                f"a detached group needs room that outlives this program: make pool {pool.name_prefix!r} with "
                "RayResourcePool(..., detached=True)"
            )
        pool.rank_request(options.use_gpu)  # what the pool has not is refused before anything is reserved
        actors = cls([], [], ("", ""), pool)
        places = pool.acquire(actors, strategy, class_with_args.user_class.__name__)
        start = GroupStart(places, class_with_args, pool, options)
        actors.handles = start.actors  # the same list: what is started before a failure is stopped after it
        try:
            start.create_actors()
            actors.names = start.names
            actors.ranks = start.run()
            actors._master = start.master
        except BaseException:
            actors.stop()
            raise
        return actors

    @classmethod
    def attach(cls, found: DetachedActors) -> RankActors:
        """Actors that another program started, whom no view owns, so that only `kill` ends them."""
        return cls(found.handles, found.ranks, found.master, None, found.names, found.placement_groups)

    @property
    def master(self) -> tuple[str, str]:
        return self._master

    def wait(
        self, refs: Sequence[Any], ranks: Sequence[RankFacts], method: str, timeout_s: float | None = None
    ) -> list[Any]:
        """`gather`, noting a death. Also of a call that is waited for after the group was marked dead."""
        try:
            return gather(refs, ranks, method, timeout_s)
        except WorkerDiedError as death:
            if death.method is not None:  # else it is of another group, and was raised here by its aliveness check
                self.mark_dead(death)
                self.is_death_told = True
            raise

    def check_alive(self, method: str) -> None:
        super().check_alive(method)
        if not self._ray.is_initialized():  # Ray would start a cluster by itself, which knows none of these actors
            raise WorkerGroupDeadError(
                f"{method} was not sent: this process has left the Ray cluster of the group (ray.shutdown)",
                reason="left the cluster",
            )

    def states(self) -> list[RankState]:
        return actor_states(self.handles)

    def kill(self) -> None:
        """Ends the processes, whoever started them, and whatever else runs in their placement groups."""
        self.stop()
        if self.pool is None:
            remove_groups(self._placement_groups)

    def reports(self, positions: Sequence[int], role: str | None, timeout_s: float) -> dict[int, RankReport]:
        handles = self.handles
        asks: dict[Key, Callable[[], Any]] = {
            # By Ray's own way to run a function in an actor: it may be any actor, of another program too.
            (position, role): functools.partial(handles[position].__ray_call__.remote, rank_report, role)
            for position in (positions if handles else ())
        }
        return {position: report for (position, _), report in self._reports.ask(asks, timeout_s).items()}

    def earlier_report(self, position: int, role: str | None) -> tuple[float, RankReport] | None:
        return self._reports.earlier((position, role))

    def running(self, positions: Sequence[int]) -> dict[int, str]:
        return running_calls({position: self.ranks[position] for position in positions}) if positions else {}

    def pool_facts(self) -> PoolFacts | None:
        return self.pool.facts() if self.pool is not None else None

    def stop(self) -> None:
        grace_s = DEAD_GROUP_GRACE_S if self.death is not None else GRACE_S
        self.is_stopped = True
        handles, self.handles = self.handles, []
        try:
            if handles and self._ray.is_initialized():
                here = self._ray.get_runtime_context().get_node_id()
                pids = [rank.pid for rank in self.ranks if rank.node_id == here and rank.pid]
                stop_actors(handles, pids, grace_s)
        finally:
            if self.pool is not None:
                self.pool.release(self)
