"""A worker method as it stands on the group: dispatch, execute, collect."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from transferqueue.controller.padding import Padding, padded_arguments
from transferqueue.workers.dispatch_modes import DispatchMode, resolve_dispatch_mode
from transferqueue.workers.execute import Execute
from transferqueue.workers.futures import materialized
from transferqueue.workers.register import Registration

if TYPE_CHECKING:
    from transferqueue.controller.worker_group import WorkerGroup


class GroupMethod:
    """``group.method(...)``: spreads the arguments over the ranks, runs the method there, collects the outputs.

    With `Execute.RANK_ZERO` the result is rank 0's output; a method registered with ``blocking=False`` gives a future.
    """

    _group: WorkerGroup

    def __init__(self, name: str, function: Any, registration: Registration, group_name: str) -> None:
        self._registration = registration
        self.__name__ = name
        self.__qualname__ = f"{group_name}.{name}"
        self.__doc__ = function.__doc__
        signature = inspect.signature(function)
        self.__signature__ = signature.replace(parameters=list(signature.parameters.values())[1:])

    def bound_to(self, group: WorkerGroup) -> GroupMethod:
        """The method of one group. A group makes it anew at each look-up, as Python does for methods: kept in the
        group, it would be a reference cycle, and the room of a dropped group would stay taken until the garbage
        collector runs."""
        bound = object.__new__(GroupMethod)
        bound.__dict__.update(self.__dict__, _group=group)
        return bound

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        registration, group = self._registration, self._group
        mode = resolve_dispatch_mode(registration.dispatch_mode)
        if registration.materialize_futures:
            args, kwargs = materialized(args, kwargs)
        padding = Padding()
        if mode.row_shards is not None and self._pads():
            args, kwargs, padding = padded_arguments(args, kwargs, mode.row_shards(group))
        args, kwargs = mode.dispatch_fn(group, *args, **kwargs)
        rank_zero = registration.execute_mode is Execute.RANK_ZERO
        if rank_zero:
            future = group.submit_rank_zero(self.__name__, args, kwargs, _only)
            return future.get() if registration.blocking else future
        if registration.blocking:
            return self._collected(mode, padding, group.call_all(self.__name__, args, kwargs))
        return group.submit_all(self.__name__, args, kwargs, lambda outputs: self._collected(mode, padding, outputs))

    def _collected(self, mode: DispatchMode, padding: Padding, outputs: list[Any]) -> Any:
        return padding.drop_from(mode.collect_fn(self._group, outputs))

    def _pads(self) -> bool:
        choice = self._registration.auto_padding
        return self._group.auto_padding if choice is None else choice

    def __repr__(self) -> str:
        return f"<group method {self.__qualname__}{self.__signature__}>"


def _only(outputs: list[Any]) -> Any:
    return outputs[0]
