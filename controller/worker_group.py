"""A group of ranks that is called as one object."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from transferqueue.controller.aliveness import AlivenessCheck, OnDeath, wait_until_alive
from transferqueue.controller.colocated.role_groups import RoleGroups
from transferqueue.controller.describe.describing import Describing
from transferqueue.controller.describe.tracing import Tracing
from transferqueue.controller.errors import WorkerGroupDeadError
from transferqueue.controller.group_method import GroupMethod
from transferqueue.controller.joined_rank import JoinedRank
from transferqueue.controller.local_rows import Locality, checked_locality
from transferqueue.controller.megatron_info import MegatronInfo
from transferqueue.controller.rank_facts import RankFacts
from transferqueue.controller.rank_set import RankSet
from transferqueue.controller.unknown_member import unknown_member
from transferqueue.workers.data_proto import DataProtoFuture
from transferqueue.workers.futures import Future
from transferqueue.workers.register import Uneven, checked_uneven, registration_of

if TYPE_CHECKING:
    from typing_extensions import Self

Finish = Callable[[list[Any]], Any]


def _same(name: str) -> str:
    return name


class WorkerGroup(Describing, Tracing, RoleGroups, MegatronInfo, ABC):
    """Ranks that run one worker class. Its registered methods appear on the group as `GroupMethod`s.

    A group is a view of a `RankSet`: some of its ranks, the class whose methods the group shows, and what these are
    called on the rank. The group that started the ranks ends them when it is closed; usable as a context manager,
    which closes it.

    Args:
        auto_padding: methods that split rows pad their batches so that every shard has the same number of rows, unless
            `register` says otherwise. None: as `DataProtoConfig.auto_padding` says at the call.
        uneven: rows that do not divide by the shards: "spread" makes shards whose sizes differ by at most one, "error"
            refuses the call, unless `register` says otherwise.
        locality: whether methods that split rows of metadata send them to ranks on the nodes that keep them, where that
            leaves shards as large as they are: "rows" chooses the rows of each shard, "shards" only which rank gets
            which shard, so that what is balanced about shards, such as tokens, stays so. The result is in the order of
            the batch. One look at each home of the rows more a call; calls that do not wait are not concerned.
    """

    _ranks: RankSet
    _user_class: type
    _name_on_rank: Callable[[str], str]
    _positions: list[int]
    _owns: bool
    _closed: bool

    def __init__(
        self, *, auto_padding: bool | None = None, uneven: Uneven = "spread", locality: Locality = "off"
    ) -> None:
        self.auto_padding = auto_padding
        self.locality: Locality = checked_locality(locality)
        self.uneven: Uneven = checked_uneven(uneven)
        self._dispatch_info: dict[str, list[int]] = {}
        self._collect_info: dict[str, list[bool]] = {}
        self._group_methods: dict[str, GroupMethod] = {}

    def _show(
        self,
        ranks: RankSet,
        user_class: type,
        name_on_rank: Callable[[str], str] = _same,
        positions: Sequence[int] | None = None,
        *,
        owns: bool,
    ) -> None:
        """Makes this group a view; `owns`: it started the ranks, so closing it ends them."""
        self._ranks = ranks
        self._user_class = user_class
        self._name_on_rank = name_on_rank
        self._positions = list(range(ranks.world_size)) if positions is None else list(positions)
        self._owns = owns
        self._closed = False

    def view(
        self,
        user_class: type | None = None,
        name_on_rank: Callable[[str], str] | None = None,
        positions: Sequence[int] | None = None,
    ) -> Self:
        """Another group over the same ranks. Nothing starts for it; closing it ends nothing.

        Args:
            user_class: the class whose registered methods it shows; None: as here.
            name_on_rank: what a method of that class is called on the rank, such as ``"actor_{}".format``; None: as
                here.
            positions: which ranks of this group, in this order; None: all.
        """
        group = object.__new__(type(self))
        WorkerGroup.__init__(group, auto_padding=self.auto_padding, uneven=self.uneven, locality=self.locality)
        group._show(
            self._ranks,
            user_class or self._user_class,
            name_on_rank or self._name_on_rank,
            self._positions if positions is None else [self._positions[position] for position in positions],
            owns=False,
        )
        group._bind_worker_method(group._user_class)
        return group

    def __getitem__(self, part: slice | int) -> Self:
        """A group over part of the ranks, ``group[2:4]``, or over one, ``group[-1]``. It numbers them from 0 for its
        own calls and asks them for their meshes anew; the ranks themselves, and errors, keep their numbers.

        Raises `IndexError` for a rank that is not there, `ValueError` for a slice without ranks.
        """
        if isinstance(part, slice):
            positions = list(range(self.world_size)[part])
            if not positions:
                raise ValueError(f"[{part.start}:{part.stop}] has no ranks; those of the group are 0 to {self._last}")
            return self.view(positions=positions)
        rank = operator.index(part)
        return self.view(positions=[self._checked_rank(rank + self.world_size if rank < 0 else rank)])

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return len(self._positions)

    @property
    def node_ids(self) -> list[str]:
        """The id of each rank's node in the cluster, in rank order; empty for ranks of this process."""
        return [facts.node_id for facts in self._facts(self._positions)]

    @property
    def is_dead(self) -> bool:
        """Whether a rank died or the group was closed."""
        return self._closed or self._ranks.is_dead

    @property
    @abstractmethod
    def workers(self) -> list[Any]:
        """What the ranks are, in rank order: Ray actor handles, or the worker objects themselves."""

    @abstractmethod
    def submit_all(self, method_name: str, args: Sequence[Any], kwargs: Mapping[str, Any], finish: Finish) -> Future:
        """Starts the method on every rank, arguments spread as in `arguments_for_ranks`; the future's result is
        `finish` of the outputs in rank order."""

    @abstractmethod
    def submit_joined(
        self,
        method_name: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        finish: Finish,
        joined: Sequence[JoinedRank],
    ) -> DataProtoFuture:
        """As `submit_all` for a method whose result is the joined rows of some ranks, in the order of `joined`: a
        future that can be split and passed on before they are computed."""

    @abstractmethod
    def submit_rank(
        self, rank: int, method_name: str, args: Sequence[Any], kwargs: Mapping[str, Any], finish: Finish
    ) -> Future:
        """Starts the method on one rank; `finish` gets a list of one output."""

    def close(self) -> None:
        """Ends what this group started: its ranks, and the reservation of its pool when no other group uses it. A view
        of ranks that were there before ends nothing, it only takes no more calls. Idempotent."""
        self._closed = True
        if self._owns:
            self.stop_worker_aliveness_check()
            self._ranks.stop()

    def release(self) -> None:
        """The same as `close`."""
        self.close()

    def shutdown(self) -> None:
        """The same as `close`."""
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def start_worker_aliveness_check(
        self, every_n_seconds: float = 1.0, on_death: OnDeath = "raise", *, timeout_s: float = 300.0
    ) -> None:
        """Looks after the ranks between calls: waits until all of them live, then asks for their state once per period,
        in a thread of its own, until one is dead or the ranks are stopped. Views of the same ranks share the check.

        Args:
            every_n_seconds: the period.
            on_death: what happens when a rank is dead, which also makes the group dead. ``"raise"``: the
                `WorkerDiedError` is raised in the controller, that is in this program's main thread, whatever it is
                doing, unless a call on the group has raised it already; where this is called from another thread, the
                next call on the group raises it. ``"abort"``: this process gets SIGABRT. Or a function, called with
                the error in the thread of the check.
            timeout_s: how long to wait until all ranks live.

        Raises `TransferTimeoutError` naming the ranks that do not live by then, `WorkerGroupDeadError` for one that is
        dead, `ValueError` when the ranks are being checked already.
        """
        self._check_alive("start_worker_aliveness_check")
        if self._ranks.check is not None and self._ranks.check.is_running:
            raise ValueError("the ranks are being checked already: stop_worker_aliveness_check() first")
        wait_until_alive(self._ranks, timeout_s)
        self._ranks.check = AlivenessCheck(self._ranks, every_n_seconds, on_death)

    def stop_worker_aliveness_check(self) -> None:
        """Ends the check, when there is one."""
        if self._ranks.check is not None:
            self._ranks.check.stop()
            self._ranks.check = None

    def submit_rank_zero(
        self, method_name: str, args: Sequence[Any], kwargs: Mapping[str, Any], finish: Finish
    ) -> Future:
        """Starts the method on rank 0 only; `finish` gets a list of one output."""
        return self.submit_rank(0, method_name, args, kwargs, finish)

    def call_all(self, method_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """Runs a method on every rank, arguments spread as in `arguments_for_ranks`; waits; the outputs in rank order.
        As `submit_all`, but the references of the call are nobody's to see, so a group may send it another way."""
        outputs: list[Any] = self.submit_all(method_name, args, kwargs, list).get()
        return outputs

    def _fetch(self, started: Any, timeout_s: float | None = None) -> Any:
        """The outputs behind what an execute method of a subclass returned; here they are there already."""
        return started

    def _is_there(self, started: Any) -> bool:
        """Whether `_fetch` would return at once."""
        return True

    def execute_all_sync(self, method_name: str, *args: Any, **kwargs: Any) -> list[Any]:
        """Runs a method, registered or not, on every rank; its outputs in rank order.

        When all arguments are lists as long as the group, element i goes to rank i; else all are broadcast.
        `PerRank([...])` and `Broadcast(value)` say it explicitly.
        """
        outputs: list[Any] = self._sender.call_all(method_name, args, kwargs)
        return outputs

    def execute_all_async(self, method_name: str, *args: Any, **kwargs: Any) -> Any:
        """As `execute_all_sync`, without waiting: a future; on Ray it is also a list of references."""
        return self._sender.submit_all(method_name, args, kwargs, list)

    def execute_all(self, method_name: str, *args: Any, **kwargs: Any) -> Any:
        """The same as `execute_all_async`."""
        return self.execute_all_async(method_name, *args, **kwargs)

    def execute_rank_sync(self, rank: int, method_name: str, *args: Any, **kwargs: Any) -> Any:
        """Runs a method, registered or not, on one rank; its output. `IndexError` for a rank that is not there."""
        return self._sender.submit_rank(
            self._checked_rank(rank), method_name, args, kwargs, operator.itemgetter(0)
        ).get()

    def execute_rank_async(self, rank: int, method_name: str, *args: Any, **kwargs: Any) -> Any:
        """As `execute_rank_sync`, without waiting: a future; on Ray a reference, whose errors are Ray's own."""
        return self._sender.submit_rank(self._checked_rank(rank), method_name, args, kwargs, operator.itemgetter(0))

    def execute_rank(self, rank: int, method_name: str, *args: Any, **kwargs: Any) -> Any:
        """The same as `execute_rank_async`."""
        return self.execute_rank_async(rank, method_name, *args, **kwargs)

    def execute_rank_zero_sync(self, method_name: str, *args: Any, **kwargs: Any) -> Any:
        """`execute_rank_sync` of rank 0."""
        return self.execute_rank_sync(0, method_name, *args, **kwargs)

    def execute_rank_zero_async(self, method_name: str, *args: Any, **kwargs: Any) -> Any:
        """`execute_rank_async` of rank 0."""
        return self.execute_rank_async(0, method_name, *args, **kwargs)

    def execute_rank_zero(self, method_name: str, *args: Any, **kwargs: Any) -> Any:
        """The same as `execute_rank_zero_async`."""
        return self.execute_rank_zero_async(method_name, *args, **kwargs)

    def dispatch_info(self, mesh_name: str) -> list[int]:
        """The DP rank of every rank in a mesh; asked of the ranks once. Those of a slice are counted from 0."""
        if mesh_name not in self._dispatch_info:
            dp_ranks = self.call_all("query_dispatch_info", (), {"mesh_name": mesh_name})
            if self.world_size < self._ranks.world_size:  # the DP ranks of a slice, counted from 0 again
                number_of = {dp_rank: number for number, dp_rank in enumerate(sorted(set(dp_ranks)))}
                dp_ranks = [number_of[dp_rank] for dp_rank in dp_ranks]
            self._dispatch_info[mesh_name] = dp_ranks
        return self._dispatch_info[mesh_name]

    def collect_info(self, mesh_name: str) -> list[bool]:
        """The collect mask of a mesh, one bool per rank; asked of the ranks once."""
        if mesh_name not in self._collect_info:
            self._collect_info[mesh_name] = self.call_all("query_collect_info", (), {"mesh_name": mesh_name})
        return self._collect_info[mesh_name]

    def _bind_worker_method(self, user_class: type) -> list[str]:
        """Puts the registered methods of a class on the group; returns their names.

        Raises `ValueError` for one whose name the group uses itself.
        """
        for name in dir(user_class):
            function = getattr(user_class, name, None)
            registration = registration_of(function)
            if registration is None:
                continue
            if name in self.__dict__ or hasattr(type(self), name) or name in _declared(type(self)):
                raise ValueError(f"{user_class.__name__}.{name}: groups have a member {name!r} of their own; rename it")
            self._group_methods[name] = GroupMethod(
                name, function, registration, type(self).__name__, user_class.__name__
            )
        return list(self._group_methods)

    def _check_alive(self, method_name: str) -> None:
        self._ranks.check_alive(method_name)
        if self._closed:
            raise WorkerGroupDeadError(f"{method_name} was not sent: the worker group was closed", reason="closed")

    def _facts(self, positions: Sequence[int]) -> list[RankFacts]:
        return [self._ranks.ranks[position] for position in positions]

    @property
    def _last(self) -> int:
        return self.world_size - 1

    def _checked_rank(self, rank: int) -> int:
        if not 0 <= rank < self.world_size:
            raise IndexError(f"rank {rank} of a group of {self.world_size} ranks, which are 0 to {self._last}")
        return rank

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._group_methods})

    def __getattr__(self, name: str) -> Any:
        # Only reached for names that are not there. The return type lets callers use bound methods under mypy.
        methods = self.__dict__.get("_group_methods", {})
        if name in methods:
            return self._role_method(name) or methods[name].bound_to(self)
        raise unknown_member(type(self).__name__, name, self.__dict__.get("_user_class"), methods)


def _declared(cls: type) -> set[str]:
    """Attributes that instances will have, set or not yet."""
    return {name for base in cls.__mro__ for name in vars(base).get("__annotations__", {})}
