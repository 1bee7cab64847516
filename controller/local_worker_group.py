"""A worker group whose ranks are objects of this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future as Call
from typing import Any

from transferqueue.controller.class_with_init_args import ClassWithInitArgs
from transferqueue.controller.joined_rank import JoinedRank
from transferqueue.controller.local_future import LocalFuture
from transferqueue.controller.local_ranks import LocalRanks
from transferqueue.controller.local_rows import Locality
from transferqueue.controller.worker_group import Finish, WorkerGroup
from transferqueue.workers.arguments import arguments_for_ranks, value_for_rank
from transferqueue.workers.data_proto import DataProtoFuture
from transferqueue.workers.register import Uneven


class LocalWorkerGroup(WorkerGroup):
    """The same calls, modes and errors as `RayWorkerGroup`, without Ray and without processes: for tests, for
    debugging, and for programs that fit in one process.

    Each rank is an object with a thread of its own: ranks run at the same time and each runs its calls in order. What
    differs: arguments and results are handed over as they are, not copied; constructors run one after the other; RANK
    and the other variables stand in the environment only while a worker is built; a collective of
    `torch.distributed` needs processes; a method that hangs cannot be ended.

    Args:
        class_with_args: the worker class, plain or with the arguments of its constructor.
        world_size: number of ranks.
        auto_padding, uneven, locality: see `WorkerGroup`.

    Raises:
        WorkerError: a constructor raised.
    """

    def __init__(
        self,
        class_with_args: ClassWithInitArgs | type,
        world_size: int = 1,
        *,
        auto_padding: bool | None = None,
        uneven: Uneven = "spread",
        locality: Locality = "off",
    ) -> None:
        super().__init__(auto_padding=auto_padding, uneven=uneven, locality=locality)
        if world_size < 1:
            raise ValueError(f"a group has at least one rank, got world_size={world_size}")
        if not isinstance(class_with_args, ClassWithInitArgs):
            class_with_args = ClassWithInitArgs(class_with_args)
        self._bind_worker_method(class_with_args.user_class)
        self._show(LocalRanks(class_with_args, world_size), class_with_args.user_class, owns=True)

    @property
    def workers(self) -> list[Any]:
        """The worker objects in rank order; none after the group was closed."""
        local = self._local.local
        return [local[position].worker for position in self._positions] if local else []

    def submit_all(
        self, method_name: str, args: Sequence[Any], kwargs: Mapping[str, Any], finish: Finish
    ) -> LocalFuture:
        self._check_alive(method_name)
        arguments = arguments_for_ranks(args, kwargs, self.world_size)
        local, name = self._local.local, self._name_on_rank(method_name)
        calls = [local[self._positions[rank]].submit(name, *arguments[rank]) for rank in range(self.world_size)]
        return self._future(calls, method_name, finish, self._positions)

    def submit_joined(
        self,
        method_name: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        finish: Finish,
        joined: Sequence[JoinedRank],
    ) -> DataProtoFuture:
        future = self.submit_all(method_name, args, kwargs, finish)
        calls = future.calls
        return DataProtoFuture(shards=[rank.shard(calls) for rank in joined], whole=future.get)

    def submit_rank(
        self, rank: int, method_name: str, args: Sequence[Any], kwargs: Mapping[str, Any], finish: Finish
    ) -> LocalFuture:
        self._check_alive(method_name)
        position = self._positions[rank]
        mine = [value_for_rank(value, rank) for value in args]
        named = {name: value_for_rank(value, rank) for name, value in kwargs.items()}
        call = self._local.local[position].submit(self._name_on_rank(method_name), mine, named)
        return self._future([call], method_name, finish, [position])

    def _future(
        self, calls: Sequence[Call[Any]], method_name: str, finish: Finish, positions: Sequence[int]
    ) -> LocalFuture:
        local, facts = self._local, self._facts(positions)
        return LocalFuture(calls, lambda timeout_s: local.wait(calls, facts, method_name, timeout_s), finish)

    @property
    def _local(self) -> LocalRanks:
        if not isinstance(self._ranks, LocalRanks):
            raise TypeError(f"a LocalWorkerGroup shows LocalRanks, got {type(self._ranks).__name__}")
        return self._ranks
