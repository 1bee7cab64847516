"""Starting the actors of a group."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from transferqueue.config import SESSION_VARIABLE
from transferqueue.controller.actor_names import actor_names, namespace_for
from transferqueue.controller.collect import gather
from transferqueue.controller.errors import WorkerDiedError, WorkerStartError
from transferqueue.controller.pools.rank_place import RankPlace, local_ranks
from transferqueue.controller.pools.ray_resource_pool import RayResourcePool
from transferqueue.controller.rank_actor import actor_class
from transferqueue.controller.rank_facts import RankFacts
from transferqueue.controller.ray_class import RayClassWithInitArgs
from transferqueue.controller.start_options import StartOptions
from transferqueue.errors import TransferTimeoutError
from transferqueue.workers.rank_nodes import RankNode, RankNodes
from transferqueue.workers.ranks import MASTER_ADDR, MASTER_PORT, REDIS_STORE_SERVER_HOST, RankInfo
from transferqueue.workers.ray_runtime import require_ray


class GroupStart:
    """One start of a group: `create_actors`, then `run`. `actors` holds what was created so far."""

    def __init__(
        self,
        places: Sequence[RankPlace],
        class_with_args: RayClassWithInitArgs,
        pool: RayResourcePool,
        options: StartOptions,
    ) -> None:
        self._ray = require_ray("RayWorkerGroup")
        self._places = places
        self._class_with_args = class_with_args
        self._pool = pool
        self._wanted = options
        self.names: list[str] = []
        self._local = local_ranks(places)
        self._nodes = RankNodes([RankNode(place.node_ip, place.node_id) for place in places])
        self.master: tuple[str, str] = ("", "")
        self.actors: list[Any] = []

    def create_actors(self) -> None:
        """Asks for the actors; they start at the same time. `WorkerStartError` for a request that no node can meet."""
        class_name = self._class_with_args.user_class.__name__
        namespace = namespace_for(self._wanted.detached)
        self.names = actor_names(self._wanted.prefix, class_name, self._places, namespace)
        remote_class = self._ray.remote(actor_class(self._class_with_args.user_class))
        for rank, place in enumerate(self._places):
            try:
                self.actors.append(remote_class.options(**self._options(rank, place)).remote())
            except ValueError as error:
                name = self._class_with_args.user_class.__name__
                raise WorkerStartError(
                    f"rank {rank} of {name} cannot be placed: {error}", rank=rank, node=place.node, reason=str(error)
                ) from error

    def run(self) -> list[RankFacts]:
        """Waits for the actors, then builds the worker on all of them at the same time. What is known of each rank.

        Raises `WorkerStartError` for an actor that did not start, `WorkerError` for a constructor that raised.
        """
        name = self._class_with_args.user_class.__name__
        ranks = [RankFacts(rank, place.node, place.node_id) for rank, place in enumerate(self._places)]
        try:
            refs = [actor._tq_process_facts.remote() for actor in self.actors]
            facts = gather(refs, ranks, f"start of {name}", self._wanted.timeout_s)
        except WorkerDiedError as error:
            raise WorkerStartError(
                f"rank {error.rank} of {name} did not start: {error.reason}", **error.details
            ) from error
        except TransferTimeoutError as error:
            waits = self._pool.describe_wait(error.missing, self._options(0, self._places[0]))
            raise WorkerStartError(
                f"ranks {error.missing} of {name} did not start within {self._wanted.timeout_s:g} s: {waits}",
                reason="timeout",
            ) from error
        ranks = [
            replace(rank, pid=fact.pid, log_paths=fact.log_paths, devices=fact.devices)
            for rank, fact in zip(ranks, facts, strict=True)
        ]
        self._pool.note_devices({rank.rank: rank.devices for rank in ranks})
        self.master = self._wanted.rendezvous.given or self._chosen_by_rank_zero(ranks)
        environment = {
            MASTER_ADDR: self.master[0],
            MASTER_PORT: self.master[1],
            REDIS_STORE_SERVER_HOST: self.master[0],
        }
        args, kwargs = self._class_with_args.args, self._class_with_args.kwargs
        builds = [actor._tq_build.remote(rank, environment, args, kwargs) for rank, actor in enumerate(self.actors)]
        gather(builds, ranks, f"{name}.__init__")
        return ranks

    def _chosen_by_rank_zero(self, ranks: Sequence[RankFacts]) -> tuple[str, str]:
        # By the process that will serve the rendezvous: it listens from the moment it has chosen, and a task of its
        # own in the bundle could only tell a port that is free again when it ends.
        chosen = self.actors[0]._tq_reserve_master.remote(self._wanted.rendezvous.port_range)
        master: tuple[str, str] = gather([chosen], ranks[:1], "choosing the port of the rendezvous")[0]
        return master

    def _options(self, rank: int, place: RankPlace) -> dict[str, Any]:
        strategies = self._ray.util.scheduling_strategies
        options: dict[str, Any] = {
            **self._pool.rank_request(self._wanted.use_gpu),
            "max_restarts": 0,
            "name": self.names[rank],
            "namespace": namespace_for(self._wanted.detached),
            **({"lifetime": "detached"} if self._wanted.detached else {}),
            "scheduling_strategy": strategies.PlacementGroupSchedulingStrategy(
                placement_group=place.placement_group, placement_group_bundle_index=place.bundle_index
            ),
        }
        options = self._class_with_args.options_over(options)
        runtime_env = dict(options.get("runtime_env") or {})
        if self._wanted.nsight is not None:
            runtime_env["nsight"] = dict(self._wanted.nsight)
        runtime_env["env_vars"] = {**runtime_env.get("env_vars", {}), **self._environment(rank)}
        return {**options, "runtime_env": runtime_env}

    def _environment(self, rank: int) -> dict[str, str]:
        local_rank, local_world_size = self._local[rank]
        environment = dict(self._wanted.worker_env)
        session = os.environ.get(SESSION_VARIABLE)
        if session is not None:
            environment[SESSION_VARIABLE] = session
        info = RankInfo(
            rank,
            len(self._places),
            local_rank,
            local_world_size,
            backend="ray",
            prefix=self._wanted.prefix,
            nodes=self._nodes,
        )
        return {**environment, **info.to_environment()}
