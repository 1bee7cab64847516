"""`register`: what a worker method tells its group."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from transferqueue.workers.bridge import bridge
from transferqueue.workers.dispatch_modes import Dispatch, resolve_dispatch_mode
from transferqueue.workers.execute import Execute, get_predefined_execute_fn

MAGIC_ATTR = "attrs_3141562937"
"""The attribute of a registered method: a dict of `dispatch_mode`, `execute_mode`, `blocking`, for programs to read."""

Uneven = Literal["spread", "error"]

_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Registration:
    """How a group calls a method. `dispatch_mode` is as given to `register`; `resolve_dispatch_mode` reads it.

    `auto_padding` and `uneven` are None where the group decides.
    """

    dispatch_mode: Any
    execute_mode: Any = Execute.ALL
    blocking: bool = True
    materialize_futures: bool = True
    auto_padding: bool | None = None
    uneven: Uneven | None = None


class RegisteredAttributes(dict[str, Any]):
    """What stands at `MAGIC_ATTR`; `registration` has what the three entries do not say."""

    registration: Registration

    def __init__(self, registration: Registration) -> None:
        super().__init__({name: getattr(registration, name) for name in ("dispatch_mode", "execute_mode", "blocking")})
        self.registration = registration

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (_with_entries(self.registration, self),)


def register(
    dispatch_mode: Any = Dispatch.ALL_TO_ALL,
    execute_mode: Any = Execute.ALL,
    blocking: bool = True,
    materialize_futures: bool = True,
    auto_padding: bool | None = None,
    uneven: Uneven | None = None,
) -> Callable[[_Function], _Function]:
    """Decorator: makes a worker method callable on the group, with metadata bridged to TensorDicts (see `tqbridge`).

    Args:
        dispatch_mode: how arguments are spread and outputs collected: a member of `Dispatch`, what
            `make_nd_compute_dataproto_dispatch_fn(mesh_name)` returns, or a dict of `dispatch_fn` and `collect_fn`.
        execute_mode: `Execute.ALL`, or `Execute.RANK_ZERO` for a method that rank 0 alone runs and whose output is
            the result. Not with a mode that splits rows: the other shards would be lost. Further members of `Execute`
            are named after a method of the group.
        blocking: False makes the call on the group return a future.
        materialize_futures: futures among the arguments are waited for before dispatch. False hands the method the
            future, or what the dispatch mode makes of it.
        auto_padding: batches are padded so that every shard has the same number of rows, and the pads are dropped
            from the result and never stored. None: as the batch, the group or `DataProtoConfig` say. Without effect in
            modes that never pad (`Dispatch.DP_COMPUTE_METRIC`).
        uneven: rows that do not divide: "spread" makes shards of sizes that differ by at most one, "error" refuses the
            call. None: as the group says.

    Raises `ValueError` for modes that do not exist or do not go together.
    """
    mode = resolve_dispatch_mode(dispatch_mode)
    get_predefined_execute_fn(execute_mode)
    splits = mode.row_shards is not None
    if splits and execute_mode is Execute.RANK_ZERO:
        raise ValueError("execute_mode RANK_ZERO with a dispatch mode that splits rows would lose all shards but one")
    if not splits and (auto_padding or uneven):
        raise ValueError(
            f"{'auto_padding' if auto_padding else 'uneven'} needs a dispatch mode that splits rows, such as "
            "Dispatch.DP_COMPUTE_PROTO"
        )
    registration = Registration(
        dispatch_mode, execute_mode, blocking, materialize_futures, auto_padding, checked_uneven(uneven)
    )

    def decorator(function: _Function) -> _Function:
        if not callable(function):
            raise TypeError(f"@register(...) is for methods, got {type(function).__name__}")
        bridged = bridge(function, mode.writes_back, materialize_futures=materialize_futures)
        setattr(bridged, MAGIC_ATTR, RegisteredAttributes(registration))
        return bridged

    return decorator


def registration_of(function: object) -> Registration | None:
    """The `Registration` of a method, None when it has none. Its dict at `MAGIC_ATTR` may also be of a program's own
    making, or changed."""
    found = getattr(function, MAGIC_ATTR, None)
    if not isinstance(found, Mapping) or "dispatch_mode" not in found:
        return None
    if isinstance(found, RegisteredAttributes):
        return _with_entries(found.registration, found)
    return _with_entries(Registration(found["dispatch_mode"]), found)


def checked_uneven(uneven: Any) -> Any:
    """`uneven` itself. `ValueError` for what is no policy."""
    if uneven not in (None, "spread", "error"):
        raise ValueError(f"uneven must be 'spread' or 'error', got {uneven!r}")
    return uneven


def _with_entries(registration: Registration, entries: Mapping[str, Any]) -> Registration:
    said = {name: entries[name] for name in ("dispatch_mode", "execute_mode", "blocking") if name in entries}
    return replace(registration, **said)
