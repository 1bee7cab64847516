"""Calls whose ranks a method of the group chooses: members of `Execute` that a program added."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from transferqueue.controller.collected_future import CollectedFuture
from transferqueue.workers.execute import get_predefined_execute_fn
from transferqueue.workers.futures import Future

if TYPE_CHECKING:
    from transferqueue.controller.worker_group import WorkerGroup


def execute_by_name(
    group: WorkerGroup,
    execute_mode: Any,
    blocking: bool,
    method_name: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    collect: Callable[[Any], Any],
) -> Any:
    """``collect(outputs)`` of what the group's method for `execute_mode` returned: a future, Ray references, or values.
    A future of it when the call does not block. `ValueError` for a method that the group does not have.
    """
    name = get_predefined_execute_fn(execute_mode)["execute_fn_name"]
    execute = getattr(type(group), name, None)
    if not callable(execute):
        raise ValueError(
            f"{execute_mode!r} stands for a method {name!r} of the group, which {type(group).__name__} does not have: "
            f"define {name}(self, method_name, *args, **kwargs) on the group's class"
        )
    started = execute(group, method_name, *args, **kwargs)
    if isinstance(started, Future):
        future = CollectedFuture(started.get, started.done, collect)
    else:
        future = CollectedFuture(
            lambda timeout_s: group._fetch(started, timeout_s), lambda: group._is_there(started), collect
        )
    return future.get() if blocking else future
