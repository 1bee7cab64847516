"""A worker group whose ranks are Ray actors."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence, Sized
from typing import Any

from transferqueue.controller.actor_names import new_prefix
from transferqueue.controller.detached_actors import found_workers
from transferqueue.controller.framed_method import FramedMethod, takes_frames
from transferqueue.controller.group_future import GroupFuture
from transferqueue.controller.joined_rank import JoinedRank
from transferqueue.controller.local_rows import Locality
from transferqueue.controller.pools.ray_resource_pool import RayResourcePool
from transferqueue.controller.rank_actor import COUNTED_CALL, FRAMED_CALL
from transferqueue.controller.rank_actors import RankActors
from transferqueue.controller.rank_set import RankSet
from transferqueue.controller.ray_class import RayClassWithInitArgs
from transferqueue.controller.rendezvous import Rendezvous
from transferqueue.controller.shared_arguments import shared_once
from transferqueue.controller.start_options import StartOptions, nsight_options
from transferqueue.controller.worker_group import Finish, WorkerGroup
from transferqueue.workers.arguments import RankArguments, arguments_for_ranks, value_for_rank
from transferqueue.workers.data_proto import DataProtoFuture
from transferqueue.workers.loop_calls import has_futures
from transferqueue.workers.ray_runtime import require_ray
from transferqueue.workers.register import Uneven


class RayWorkerGroup(WorkerGroup):
    """Starts one actor per rank of a pool and calls them as one object.

    The constructor returns when every rank has built its worker. Each rank finds in its environment: RANK, WORLD_SIZE,
    LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT and, when this process belongs to a session,
    TRANSFERQUEUE_SESSION.

    A rank that dies makes the call that notices raise `WorkerDiedError`, and every later call `WorkerGroupDeadError`:
    close the group and make a new one.

    Args:
        resource_pool: where the ranks run: a pool or part of one; may be shared by several groups. None: on workers of
            another program, which `worker_names`, `worker_handles` or `name_prefix` say; see `from_detached`.
        ray_cls_with_init: the worker class and its constructor's arguments.
        bin_pack: keep each node entry of the pool on one node; False spreads where it must.
        name_prefix: start of the actors' names, ``<prefix><class>_<node entry>:<rank in it>``; a unique one is made
            up. Where an earlier run left actors of these names, the prefix gets a unique ending (`worker_names` tells).
        detached: the ranks outlive this program; the pool must be ``detached=True`` too.
        worker_names, worker_handles: see `from_detached`.
        ray_wait_register_center_timeout: another name of `start_timeout_s`.
        auto_padding, uneven, locality: see `WorkerGroup`.
        worker_env: further environment variables of the ranks; `ValueError` naming a key that the group itself sets.
        start_timeout_s: how long actors may take to start (the constructor of the worker class not counted).
        master_addr, master_port, master_port_range: where the ranks meet; see `Rendezvous`.
        namespace: where to look for `worker_names`; None: everywhere, this program's own namespace first.
        device_name: torch's name of the accelerators, for a pool whose maker did not say: ``"cuda"``, ``"npu"``.
        use_gpu: whether the ranks take a share of the pool's accelerators; None: where it has any.
        profile_steps, worker_nsight_options: with steps to profile, the ranks run under nsys with these options.

    Raises:
        InsufficientResourcesError: the pool does not fit the cluster.
        WorkerStartError: an actor did not start.
        WorkerError: a constructor raised; the group is taken down.
    """

    def __init__(
        self,
        resource_pool: RayResourcePool | None = None,
        ray_cls_with_init: RayClassWithInitArgs | None = None,
        bin_pack: bool = True,
        name_prefix: str | None = None,
        detached: bool = False,
        worker_names: Sequence[str] | None = None,
        worker_handles: Sequence[Any] | None = None,
        ray_wait_register_center_timeout: float | None = None,
        *,
        auto_padding: bool | None = None,
        uneven: Uneven = "spread",
        locality: Locality = "off",
        worker_env: Mapping[str, str] | None = None,
        start_timeout_s: float = 300.0,
        master_addr: str | None = None,
        master_port: int | str | None = None,
        master_port_range: Sequence[int] | None = None,
        namespace: str | None = None,
        device_name: str | None = None,
        use_gpu: bool | None = None,
        profile_steps: Sized | None = None,
        worker_nsight_options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(auto_padding=auto_padding, uneven=uneven, locality=locality)
        self.ray_cls_with_init = ray_cls_with_init
        self._name_prefix = name_prefix
        timeout_s = start_timeout_s if ray_wait_register_center_timeout is None else ray_wait_register_center_timeout
        if resource_pool is None:
            user_class = None if ray_cls_with_init is None else ray_cls_with_init.user_class
            found = found_workers(name_prefix, worker_names, worker_handles, user_class, namespace, timeout_s)
            self._show(RankActors.attach(found), user_class or found.user_class or object, owns=False)
            self._bind_worker_method(self._user_class)
            return
        if ray_cls_with_init is None or worker_names is not None or worker_handles is not None:
            raise TypeError(
                "a group on a resource_pool is started from ray_cls_with_init; worker_names and worker_handles are for "
                "a group without a pool, on workers that run already"
            )
        self._bind_worker_method(ray_cls_with_init.user_class)  # what cannot be bound is refused before any start
        options = StartOptions(
            worker_env or {},
            timeout_s,
            new_prefix() if name_prefix is None else name_prefix,
            Rendezvous(master_addr, master_port, master_port_range),
            detached,
            use_gpu,
            nsight_options(worker_nsight_options, profile_steps),
        )
        if device_name not in (None, "cpu"):
            resource_pool.say_device(device_name)
        strategy = "STRICT_PACK" if bin_pack else "PACK"
        actors = RankActors.start(resource_pool, ray_cls_with_init, options, strategy)
        self._show(actors, ray_cls_with_init.user_class, owns=True)

    @classmethod
    def from_detached(
        cls,
        name_prefix: str | None = None,
        worker_names: Sequence[str] | None = None,
        worker_handles: Sequence[Any] | None = None,
        ray_cls_with_init: RayClassWithInitArgs | None = None,
        **options: Any,
    ) -> RayWorkerGroup:
        """A group on workers that run already: those that another program left behind, or any Ray actors of a worker
        class. Closing it ends nothing; `kill` does.

        Args:
            name_prefix: that of the group that started them, when neither names nor handles are given.
            worker_names: the actors' names in rank order, as `worker_names` told the program that started them.
            worker_handles: the actors themselves, in rank order.
            ray_cls_with_init: whose methods the group shows; None: what the workers say that they are, which a worker
                says between two calls. With it, workers that are busy are not waited for; the address of the rendezvous
                and the log of a busy one are then not known.
            options: further arguments of the constructor, such as `namespace` or `auto_padding`.

        Raises:
            DetachedWorkersNotFoundError: a worker does not live; it names which.
            TransferTimeoutError: a worker has not answered within `start_timeout_s`.
        """
        return cls(None, ray_cls_with_init, True, name_prefix, False, worker_names, worker_handles, **options)

    ray_cls_with_init: RayClassWithInitArgs | None = None
    _framed: dict[str, FramedMethod | None]
    _name_prefix: str | None = None

    def _show(self, ranks: RankSet, *args: Any, **kwargs: Any) -> None:
        super()._show(ranks, *args, **kwargs)
        self._framed = {}

    @property
    def actors(self) -> RankActors:
        """The actors that this group is a view of."""
        if not isinstance(self._ranks, RankActors):
            raise TypeError(f"a RayWorkerGroup shows RankActors, got {type(self._ranks).__name__}")
        return self._ranks

    @property
    def resource_pool(self) -> RayResourcePool | None:
        """Where the ranks run; None for ranks that another program started."""
        return self.actors.pool

    @property
    def name_prefix(self) -> str | None:
        """As given."""
        return self._name_prefix

    @property
    def worker_names(self) -> list[str]:
        """The actors' names in the cluster, in rank order; empty for one without a name."""
        return [self.actors.names[position] for position in self._positions]

    def kill(self) -> None:
        """Ends the ranks, whoever started them, and gives back their room, with whatever else runs in it when another
        program started them. This is how detached ranks end; every view of them is dead then."""
        self._framed.clear()
        self.stop_worker_aliveness_check()
        self.actors.kill()

    @property
    def workers(self) -> list[Any]:
        """The Ray actor handles in rank order; none after the actors were stopped."""
        handles = self.actors.handles
        return [handles[position] for position in self._positions] if handles else []

    @property
    def master_address(self) -> str:
        return self.actors.master[0]

    @property
    def master_port(self) -> str:
        return self.actors.master[1]

    def submit_all(
        self, method_name: str, args: Sequence[Any], kwargs: Mapping[str, Any], finish: Finish
    ) -> GroupFuture:
        self._check_alive(method_name)
        args, kwargs = shared_once(args, kwargs, self.world_size)
        arguments = arguments_for_ranks(args, kwargs, self.world_size)
        refs, _ = self._started(method_name, arguments, counted=has_futures(*arguments[0]))
        return self._future(refs, method_name, finish, self._positions)

    def submit_joined(
        self,
        method_name: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        finish: Finish,
        joined: Sequence[JoinedRank],
    ) -> DataProtoFuture:
        self._check_alive(method_name)
        args, kwargs = shared_once(args, kwargs, self.world_size)
        arguments = arguments_for_ranks(args, kwargs, self.world_size)
        refs, counts = self._started(method_name, arguments, counted=True)
        actors, facts = self.actors, self._facts(self._positions)
        facts_of = {**dict(zip(refs, facts, strict=True)), **dict(zip(counts or [], facts, strict=False))}

        def gather(wanted: Sequence[Any], timeout_s: float | None) -> list[Any]:
            return actors.wait(wanted, [facts_of[ref] for ref in wanted], method_name, timeout_s)

        return DataProtoFuture(
            shards=[rank.shard(refs, counts) for rank in joined],
            whole=lambda timeout_s: finish(gather(refs, timeout_s)),
            gather=gather,
        )

    def call_all(self, method_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        self._check_alive(method_name)
        # A future is awaited where a rank has an event loop, before the method is called: `submit_all` does that.
        framed = None if has_futures(args, kwargs) else self._framed_method(method_name)
        sent = None if framed is None else framed.send(args, kwargs)
        if sent is None:
            return super().call_all(method_name, args, kwargs)
        return sent.outputs(self.actors.wait(sent.refs, self._facts(self._positions), method_name))

    def submit_rank(
        self, rank: int, method_name: str, args: Sequence[Any], kwargs: Mapping[str, Any], finish: Finish
    ) -> GroupFuture:
        self._check_alive(method_name)
        mine = [value_for_rank(value, rank) for value in args]
        named = {name: value_for_rank(value, rank) for name, value in kwargs.items()}
        ref = getattr(self.workers[rank], self._name_on_rank(method_name)).remote(*mine, **named)
        return self._future([ref], method_name, finish, [self._positions[rank]])

    def execute_rank_async(self, rank: int, method_name: str, *args: Any, **kwargs: Any) -> Any:
        """As `execute_rank_sync`, without waiting: a Ray reference, whose errors are Ray's own."""
        return self._sender.submit_rank(self._checked_rank(rank), method_name, args, kwargs, operator.itemgetter(0))[0]

    def _fetch(self, started: Any, timeout_s: float | None = None) -> Any:
        """The outputs behind Ray references, one or a list of them; anything else is the output itself."""
        refs = _refs(started)
        if not refs:
            return started
        if len(refs) == self.world_size:
            outputs = self.actors.wait(refs, self._facts(self._positions), "an execute method", timeout_s)
        else:
            outputs = require_ray("RayWorkerGroup").get(refs, timeout=timeout_s)
        return outputs if isinstance(started, list) else outputs[0]

    def _is_there(self, started: Any) -> bool:
        refs = _refs(started)
        ready, _ = require_ray("RayWorkerGroup").wait(refs, num_returns=len(refs), timeout=0) if refs else ([], [])
        return len(ready) == len(refs)

    def close(self) -> None:
        self._framed.clear()  # it holds handles
        super().close()

    def _future(self, refs: Sequence[Any], method_name: str, finish: Finish, positions: Sequence[int]) -> GroupFuture:
        actors, facts = self.actors, self._facts(positions)
        return GroupFuture(refs, lambda refs, timeout_s: actors.wait(refs, facts, method_name, timeout_s), finish)

    def _started(
        self, method_name: str, arguments: Sequence[RankArguments], *, counted: bool
    ) -> tuple[list[Any], list[Any] | None]:
        """References of the outputs of all ranks and, when `counted`, of their numbers of rows; None for these where
        Ray was told how to run the method, or another program made the actors."""
        on_rank = self._name_on_rank(method_name)
        if counted and self._framed_method(method_name) is not None:  # what runs frames also counts
            task = f"{self._user_class.__name__}.{method_name}"
            calls = [getattr(worker, COUNTED_CALL).options(name=task, num_returns=2) for worker in self.workers]
            started = [
                call.remote(on_rank, *mine, **named) for call, (mine, named) in zip(calls, arguments, strict=True)
            ]
            return [output for output, _ in started], [rows for _, rows in started]
        methods = [getattr(worker, on_rank) for worker in self.workers]
        return [method.remote(*mine, **named) for method, (mine, named) in zip(methods, arguments, strict=True)], None

    def _framed_method(self, method_name: str) -> FramedMethod | None:
        if method_name not in self._framed:
            takes = takes_frames(self._user_class, method_name) and all(
                hasattr(worker, FRAMED_CALL) for worker in self.workers
            )
            on_rank = self._name_on_rank(method_name)
            self._framed[method_name] = (
                FramedMethod(self._user_class, method_name, self.workers, on_rank) if takes else None
            )
        return self._framed[method_name]


def _refs(started: Any) -> list[Any]:
    """The Ray references that something is, none for what is no reference and no list of them."""
    refs = started if isinstance(started, list) else [started]
    return refs if all(isinstance(ref, require_ray("RayWorkerGroup").ObjectRef) for ref in refs) else []
