"""A worker group whose ranks are Ray actors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from transferqueue.controller.actor_start import GroupStart
from transferqueue.controller.actor_stop import DEAD_GROUP_GRACE_S, GRACE_S, stop_actors
from transferqueue.controller.collect import RankFacts, gather
from transferqueue.controller.errors import WorkerDiedError, WorkerGroupDeadError
from transferqueue.controller.framed_method import FramedMethod, takes_frames
from transferqueue.controller.group_future import GroupFuture
from transferqueue.controller.pools.ray_resource_pool import RayResourcePool
from transferqueue.controller.ray_class import RayClassWithInitArgs
from transferqueue.controller.shared_arguments import shared_once
from transferqueue.controller.worker_group import Finish, WorkerGroup
from transferqueue.workers.arguments import arguments_for_ranks, value_for_rank
from transferqueue.workers.ray_runtime import require_ray


class RayWorkerGroup(WorkerGroup):
    """Starts one actor per rank of a pool and calls them as one object.

    The constructor returns when every rank has built its worker. Each rank finds in its environment: RANK, WORLD_SIZE,
    LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT and, when this process belongs to a session,
    TRANSFERQUEUE_SESSION.

    A rank that dies makes the call that notices raise `WorkerDiedError`, and every later call `WorkerGroupDeadError`:
    shut the group down and make a new one. Usable as a context manager, which shuts it down.

    Args:
        resource_pool: where the ranks run; may be shared by several groups.
        ray_cls_with_init: the worker class and its constructor's arguments.
        bin_pack: keep each node entry of the pool on one node; False spreads where it must.
        auto_padding: see `WorkerGroup`.
        worker_env: further environment variables of the ranks.
        start_timeout_s: how long actors may take to start (the constructor of the worker class not counted).

    Raises:
        InsufficientResourcesError: the pool does not fit the cluster.
        WorkerStartError: an actor did not start.
        WorkerError: a constructor raised; the group is taken down.
    """

    def __init__(
        self,
        resource_pool: RayResourcePool,
        ray_cls_with_init: RayClassWithInitArgs,
        bin_pack: bool = True,
        *,
        auto_padding: bool = False,
        worker_env: Mapping[str, str] | None = None,
        start_timeout_s: float = 300.0,
    ) -> None:
        super().__init__(auto_padding=auto_padding)
        self._ray = require_ray("RayWorkerGroup")
        self.resource_pool = resource_pool
        self._workers: list[Any] = []
        self._ranks: list[RankFacts] = []
        self._dead: WorkerGroupDeadError | None = None
        self._user_class = ray_cls_with_init.user_class
        self._framed: dict[str, FramedMethod | None] = {}
        self._bind_worker_method(self._user_class)
        places = resource_pool.acquire(self, "STRICT_PACK" if bin_pack else "PACK")
        start = GroupStart(places, ray_cls_with_init, resource_pool, worker_env or {}, start_timeout_s)
        self._workers = start.actors  # the same list: what is started before a failure is stopped after it
        try:
            start.create_actors()
            self._ranks = start.run()
            self._master = start.master
        except BaseException:
            self.shutdown()
            raise

    @property
    def world_size(self) -> int:
        return self.resource_pool.world_size

    @property
    def workers(self) -> list[Any]:
        """The Ray actor handles in rank order."""
        return list(self._workers)

    @property
    def master_address(self) -> str:
        return self._master[0]

    @property
    def master_port(self) -> str:
        return self._master[1]

    @property
    def is_dead(self) -> bool:
        """Whether a rank died or the group was shut down."""
        return self._dead is not None

    def execute_rank_zero_sync(self, method_name: str, *args: Any, **kwargs: Any) -> Any:
        """Runs a method, registered or not, on rank 0; its output."""
        return self.submit_rank_zero(method_name, args, kwargs, _first).get()

    def execute_rank_zero_async(self, method_name: str, *args: Any, **kwargs: Any) -> Any:
        """As `execute_rank_zero_sync`, without waiting: a Ray reference, whose errors are Ray's own."""
        return self.submit_rank_zero(method_name, args, kwargs, _first)[0]

    def execute_rank_zero(self, method_name: str, *args: Any, **kwargs: Any) -> Any:
        """The same as `execute_rank_zero_async`."""
        return self.execute_rank_zero_async(method_name, *args, **kwargs)

    def submit_all(
        self, method_name: str, args: Sequence[Any], kwargs: Mapping[str, Any], finish: Finish
    ) -> GroupFuture:
        self._check_alive(method_name)
        args, kwargs = shared_once(args, kwargs, self.world_size)
        arguments = arguments_for_ranks(args, kwargs, self.world_size)
        methods = [getattr(worker, method_name) for worker in self._workers]
        refs = [method.remote(*mine, **named) for method, (mine, named) in zip(methods, arguments, strict=True)]
        return self._future(refs, method_name, finish)

    def call_all(self, method_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        self._check_alive(method_name)
        framed = self._framed_method(method_name)
        sent = None if framed is None else framed.send(args, kwargs)
        if sent is None:
            return super().call_all(method_name, args, kwargs)
        return sent.outputs(self._wait(sent.refs, method_name, None))

    def submit_rank_zero(
        self, method_name: str, args: Sequence[Any], kwargs: Mapping[str, Any], finish: Finish
    ) -> GroupFuture:
        self._check_alive(method_name)
        mine = [value_for_rank(value, 0) for value in args]
        named = {name: value_for_rank(value, 0) for name, value in kwargs.items()}
        return self._future([getattr(self._workers[0], method_name).remote(*mine, **named)], method_name, finish)

    def shutdown(self) -> None:
        """Ends the ranks' processes and gives the pool's room back (when no other group uses it). Idempotent."""
        grace_s = GRACE_S if self._dead is None else DEAD_GROUP_GRACE_S
        if self._workers or self._dead is None:
            self._dead = WorkerGroupDeadError("the worker group was shut down", reason="shut down")
        workers, self._workers = self._workers, []
        self._framed.clear()
        try:
            if workers and self._ray.is_initialized():
                here = self._ray.get_runtime_context().get_node_id()
                stop_actors(workers, [rank.pid for rank in self._ranks if rank.node_id == here and rank.pid], grace_s)
        finally:
            self.resource_pool.release(self)

    def __enter__(self) -> RayWorkerGroup:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.shutdown()

    def _future(self, refs: Sequence[Any], method_name: str, finish: Finish) -> GroupFuture:
        return GroupFuture(refs, lambda refs, timeout_s: self._wait(refs, method_name, timeout_s), finish)

    def _wait(self, refs: Sequence[Any], method_name: str, timeout_s: float | None) -> list[Any]:
        try:
            return gather(refs, self._ranks[: len(refs)], method_name, timeout_s)
        except WorkerDiedError as death:
            self._mark_dead(death)
            raise

    def _framed_method(self, method_name: str) -> FramedMethod | None:
        if method_name not in self._framed:
            user_class = self._user_class
            takes = takes_frames(user_class, method_name)
            self._framed[method_name] = FramedMethod(user_class, method_name, self._workers) if takes else None
        return self._framed[method_name]

    def _mark_dead(self, death: WorkerDiedError) -> None:
        if self._dead is None:
            self._dead = WorkerGroupDeadError(
                f"the worker group is dead: {death.message}", **{**death.details, "cause": death}
            )

    def _check_alive(self, method_name: str) -> None:
        if self._dead is not None:
            raise WorkerGroupDeadError(f"{method_name} was not sent: {self._dead.message}", **self._dead.details)


def _first(outputs: list[Any]) -> Any:
    return outputs[0]
