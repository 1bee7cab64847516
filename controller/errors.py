"""Failures of ranks and groups, as the caller of a group sees them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from transferqueue.errors import TransferQueueError


class WorkerError(TransferQueueError, RuntimeError):
    """A method raised on a rank: `rank`, `node` (address and id), `pid`, `method`, `remote_traceback`, `cause`.

    What is raised is also an instance of the class that the method raised, so ``except KeyError`` keeps working; the
    attributes of that error (``error.fields`` of a `FieldNotReadyError`) are there too. `cause` is the original.
    """

    _declared: ClassVar[Mapping[str, Any]] = {
        "rank": None,
        "node": None,
        "pid": None,
        "method": None,
        "remote_traceback": "",
        "cause": None,
    }
    rank: int | None
    node: str | None
    pid: int | None
    method: str | None
    remote_traceback: str
    cause: BaseException | None

    def __getattr__(self, name: str) -> Any:
        # Only reached for what is not there: attributes that a user's own error class sets in its constructor.
        cause = self.__dict__.get("cause")
        if cause is None or name.startswith("__"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(cause, name)

    def __reduce__(self) -> tuple[Any, ...]:
        # The class of this object may be made at run time (see `worker_error`) and then has no importable name.
        return _rebuild, (_plain_class(type(self)), self.message, self.details)


class WorkerDiedError(WorkerError):
    """A rank's process is gone, and with it the group. `rank`, `node`, `pid`, `method` (the call it died in; None:
    outside of one), `reason` (how the process ended), `log_lines` (the last that it wrote).
    """

    _declared: ClassVar[Mapping[str, Any]] = {**WorkerError._declared, "reason": "", "log_lines": ()}
    reason: str
    log_lines: tuple[str, ...]


class WorkerGroupDeadError(WorkerDiedError):
    """A call on a group that lost a rank earlier, or that was shut down. Nothing was sent to the ranks."""


class WorkerStartError(WorkerError):
    """A rank could not be started: `rank` (None when it is not known which), `reason`."""

    _declared: ClassVar[Mapping[str, Any]] = {**WorkerError._declared, "reason": ""}
    reason: str


class DetachedWorkersNotFoundError(TransferQueueError, LookupError):
    """Workers of another program that are to be found and are not there: `missing` names them."""

    _declared: ClassVar[Mapping[str, Any]] = {"missing": ()}
    missing: tuple[str, ...]


class InsufficientResourcesError(TransferQueueError, ValueError):
    """A pool that does not fit the cluster: `wanted` and `present` (resources by name), `nodes` (what each has)."""

    _declared: ClassVar[Mapping[str, Any]] = {"wanted": None, "present": None, "nodes": ()}
    wanted: Mapping[str, float]
    present: Mapping[str, float]
    nodes: tuple[str, ...]


class PoolSharedOutError(InsufficientResourcesError):
    """A group that would be one too many on a pool: `pool`, `bundle` (its number), `users` (who runs there)."""

    _declared: ClassVar[Mapping[str, Any]] = {
        **InsufficientResourcesError._declared,
        "pool": "",
        "bundle": None,
        "users": (),
    }
    pool: str
    bundle: int | None
    users: tuple[str, ...]


class PoolNotFoundError(TransferQueueError, KeyError):
    """A role without a pool, or a pool that is not specified: `role`, `known`."""

    _declared: ClassVar[Mapping[str, Any]] = {"role": None, "known": ()}
    role: Any
    known: tuple[str, ...]


class PoolShapeError(TransferQueueError, ValueError, AssertionError):
    """Pools that cannot be split or merged as asked; programs for verl catch an AssertionError there."""


def worker_error(cause: BaseException | None, message: str, **details: Any) -> WorkerError:
    """A `WorkerError` that is also an instance of the class of `cause`, where that class allows it."""
    details["cause"] = cause
    if isinstance(cause, TransferQueueError):
        details = {**cause.details, **details}
    return _rebuild(WorkerError, message, details)


def _rebuild(cls: type[WorkerError], message: str, details: Mapping[str, Any]) -> WorkerError:
    cause = details.get("cause")
    error: WorkerError | None = None
    if cls is WorkerError and isinstance(cause, Exception) and not isinstance(cause, WorkerError):
        try:
            error = type(f"WorkerError({type(cause).__name__})", (cls, type(cause)), {})(message, **details)
        except TypeError:  # a class that does not want to be a base: the plain class says the same
            error = None
    if error is None:
        error = cls(message, **details)
    if isinstance(cause, BaseException):
        error.__cause__ = cause
    return error


def _plain_class(cls: type[WorkerError]) -> type[WorkerError]:
    classes = (WorkerGroupDeadError, WorkerDiedError, WorkerStartError)
    return next((base for base in classes if issubclass(cls, base)), WorkerError)
