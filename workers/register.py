"""`register`: what a worker method tells its group."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from transferqueue.workers.bridge import tqbridge
from transferqueue.workers.dispatch_modes import Dispatch, resolve_dispatch_mode
from transferqueue.workers.execute import Execute, get_predefined_execute_fn

MAGIC_ATTR = "_transferqueue_registered"
"""The attribute of a registered method that holds its `Registration`."""

_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Registration:
    """How a group calls a method. `dispatch_mode` is as given to `register`; `resolve_dispatch_mode` reads it."""

    dispatch_mode: Any
    execute_mode: Any
    blocking: bool
    materialize_futures: bool
    auto_padding: bool | None


def register(
    dispatch_mode: Any = Dispatch.ALL_TO_ALL,
    execute_mode: Any = Execute.ALL,
    blocking: bool = True,
    materialize_futures: bool = True,
    auto_padding: bool | None = None,
) -> Callable[[_Function], _Function]:
    """Decorator: makes a worker method callable on the group, with metadata bridged to TensorDicts (see `tqbridge`).

    Args:
        dispatch_mode: how arguments are spread and outputs collected: a member of `Dispatch`, or what
            `make_nd_compute_dataproto_dispatch_fn(mesh_name)` returns.
        execute_mode: `Execute.ALL`, or `Execute.RANK_ZERO` for a method that rank 0 alone runs and whose output is
            the result. Not with a mode that splits rows: the other shards would be lost.
        blocking: False makes the call on the group return a future.
        materialize_futures: futures among the arguments are waited for before dispatch. A mode that splits rows needs
            it.
        auto_padding: batches are padded so that every shard has the same number of rows, and the pads are dropped
            from the result and never stored. None: as the group says.

    Raises `ValueError` for modes that do not exist or do not go together.
    """
    mode = resolve_dispatch_mode(dispatch_mode)
    get_predefined_execute_fn(execute_mode)
    splits = mode.row_shards is not None
    if splits and execute_mode is Execute.RANK_ZERO:
        raise ValueError("execute_mode RANK_ZERO with a dispatch mode that splits rows would lose all shards but one")
    if auto_padding and not splits:
        raise ValueError("auto_padding needs a dispatch mode that splits rows, such as Dispatch.DP_COMPUTE_PROTO")
    registration = Registration(dispatch_mode, execute_mode, blocking, materialize_futures, auto_padding)

    def decorator(function: _Function) -> _Function:
        bridged = tqbridge(mode)(function)
        setattr(bridged, MAGIC_ATTR, registration)
        return bridged

    return decorator


def registration_of(function: object) -> Registration | None:
    """The `Registration` of a method, None when it has none."""
    found = getattr(function, MAGIC_ATTR, None)
    return found if isinstance(found, Registration) else None
