"""A group of ranks that is called as one object."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from transferqueue.controller.group_method import GroupMethod
from transferqueue.workers.futures import Future
from transferqueue.workers.register import registration_of

Finish = Callable[[list[Any]], Any]


class WorkerGroup(ABC):
    """Ranks that run one worker class. Its registered methods appear on the group as `GroupMethod`s.

    Args:
        auto_padding: methods that split rows pad their batches so that every shard has the same number of rows, unless
            `register` says otherwise.
    """

    def __init__(self, *, auto_padding: bool = False) -> None:
        self.auto_padding = auto_padding
        self._dispatch_info: dict[str, list[int]] = {}
        self._collect_info: dict[str, list[bool]] = {}
        self._group_methods: dict[str, GroupMethod] = {}

    @property
    @abstractmethod
    def world_size(self) -> int:
        """Number of ranks."""

    @abstractmethod
    def submit_all(self, method_name: str, args: Sequence[Any], kwargs: Mapping[str, Any], finish: Finish) -> Future:
        """Starts the method on every rank, arguments spread as in `arguments_for_ranks`; the future's result is
        `finish` of the outputs in rank order."""

    @abstractmethod
    def submit_rank_zero(
        self, method_name: str, args: Sequence[Any], kwargs: Mapping[str, Any], finish: Finish
    ) -> Future:
        """Starts the method on rank 0 only; `finish` gets a list of one output."""

    def call_all(self, method_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """Runs a method on every rank, arguments spread as in `arguments_for_ranks`; waits; the outputs in rank order.
        As `submit_all`, but the references of the call are nobody's to see, so a group may send it another way."""
        outputs: list[Any] = self.submit_all(method_name, args, kwargs, list).get()
        return outputs

    def execute_all_sync(self, method_name: str, *args: Any, **kwargs: Any) -> list[Any]:
        """Runs a method, registered or not, on every rank; its outputs in rank order.

        When all arguments are lists as long as the group, element i goes to rank i; else all are broadcast.
        `PerRank([...])` and `Broadcast(value)` say it explicitly.
        """
        return self.call_all(method_name, args, kwargs)

    def execute_all_async(self, method_name: str, *args: Any, **kwargs: Any) -> Any:
        """As `execute_all_sync`, without waiting: a future, which is also a list of Ray references."""
        return self.submit_all(method_name, args, kwargs, list)

    def execute_all(self, method_name: str, *args: Any, **kwargs: Any) -> Any:
        """The same as `execute_all_async`."""
        return self.execute_all_async(method_name, *args, **kwargs)

    def dispatch_info(self, mesh_name: str) -> list[int]:
        """The DP rank of every rank in a mesh; asked of the ranks once."""
        if mesh_name not in self._dispatch_info:
            self._dispatch_info[mesh_name] = self.execute_all_sync("query_dispatch_info", mesh_name=mesh_name)
        return self._dispatch_info[mesh_name]

    def collect_info(self, mesh_name: str) -> list[bool]:
        """The collect mask of a mesh, one bool per rank; asked of the ranks once."""
        if mesh_name not in self._collect_info:
            self._collect_info[mesh_name] = self.execute_all_sync("query_collect_info", mesh_name=mesh_name)
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
            if name in self.__dict__ or hasattr(type(self), name):
                raise ValueError(f"{user_class.__name__}.{name}: groups have a member {name!r} of their own; rename it")
            self._group_methods[name] = GroupMethod(name, function, registration, type(self).__name__)
        return list(self._group_methods)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._group_methods})

    def __getattr__(self, name: str) -> Any:
        # Only reached for names that are not there. The return type lets callers use bound methods under mypy.
        methods = self.__dict__.get("_group_methods", {})
        if name in methods:
            return methods[name].bound_to(self)
        raise AttributeError(
            f"{type(self).__name__} has no member {name!r}; methods registered on the worker class: "
            f"{', '.join(methods) or 'none'}. Decorate the method with @register to call it on the group"
        )
