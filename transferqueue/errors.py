"""One exception class per failure.

Every class inherits `TransferQueueError` and the built-in that a caller would expect, so both
``except TransferQueueError`` and ``except KeyError`` work. A message says what was asked, what is there and what
to do; the facts behind it are also attributes (``error.keys``, ``error.used_bytes``), and they survive pickling,
since errors cross process borders through Ray.
"""

from __future__ import annotations

import queue
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from transferqueue.printable import printable


def name_some(items: Iterable[object], limit: int = 8) -> str:
    """The first `limit` items as text and how many more there are: ``'a', 'b' and 3 more``.

    Keys may be 10 kB long and a batch may hold 10,000 of them; a message that prints them all helps nobody.
    """
    listed = list(items)
    shown = []
    for item in listed[:limit]:
        text = repr(item)
        shown.append(text if len(text) <= 80 else f"{text[:60]}...({len(text)} characters)")
    more = len(listed) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _rebuild(cls: type[TransferQueueError], message: str, details: Mapping[str, Any]) -> TransferQueueError:
    return cls(message, **details)


class TransferQueueError(Exception):
    """Base of every error of this package.

    Args:
        message: what was asked, what is there, what to do.
        details: facts that the class declares (`None` or empty when not given) and any further ones; each becomes
            an attribute of the same name.
    """

    # Defaults are set on the instance, never left on the class: Ray re-raises a remote error as a subclass whose
    # missing *instance* attributes are looked up on the original, and a class attribute would hide the value.
    _declared: ClassVar[Mapping[str, Any]] = {}

    message: str
    details: dict[str, Any]

    def __init__(self, message: str = "", /, **details: Any) -> None:
        # All built-in bases accept the message as their only argument; OSError would read a second one as errno.
        # Names in it are whoever's: a terminal that shows the error must not obey them.
        message = printable(message, lines=True)
        super().__init__(message)
        self.message = message
        self.details = details
        for name, default in self._declared.items():
            setattr(self, name, details.get(name, default))
        for name, value in details.items():
            if name not in self._declared and not hasattr(type(self), name):
                setattr(self, name, value)

    def __str__(self) -> str:
        # KeyError would print the repr of its message, quotes and escaped newlines included.
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.details)


class KeyNotFoundError(TransferQueueError, KeyError):
    """Keys that the partition does not hold: `keys`, `partition_id`."""

    _declared: ClassVar[Mapping[str, Any]] = {"keys": (), "partition_id": None}
    keys: tuple[str, ...]
    partition_id: str | None


class FieldNotReadyError(TransferQueueError, KeyError):
    """Fields that are unknown, or not produced on some rows: `fields`, `rows` (global indexes), `keys`."""

    _declared: ClassVar[Mapping[str, Any]] = {"fields": (), "rows": (), "keys": (), "partition_id": None}
    fields: tuple[str, ...]
    rows: tuple[int, ...]
    keys: tuple[str, ...]
    partition_id: str | None


class StaleMetadataError(TransferQueueError, KeyError):
    """Metadata names rows that were cleared since, or a claim that lapsed: `rows` (global indexes)."""

    _declared: ClassVar[Mapping[str, Any]] = {"rows": (), "partition_id": None}
    rows: tuple[int, ...]
    partition_id: str | None


class PartitionNotFoundError(TransferQueueError, KeyError):
    """No partition of that name: `partition_id`, and the names that exist in `known`."""

    _declared: ClassVar[Mapping[str, Any]] = {"partition_id": None, "known": ()}
    partition_id: str | None
    known: tuple[str, ...]


class SchemaMismatchError(TransferQueueError, ValueError):
    """Data that does not fit what was declared or what it is joined with: `fields`, `expected`, `found`."""

    _declared: ClassVar[Mapping[str, Any]] = {"fields": (), "expected": None, "found": None}
    fields: tuple[str, ...]
    expected: Any
    found: Any


class SessionNotFoundError(TransferQueueError, LookupError):
    """The session is gone, was never there, or is another one than the metadata's: `session`, `found`."""

    _declared: ClassVar[Mapping[str, Any]] = {"session": None, "found": None}
    session: str | None
    found: str | None


class LayoutMismatchError(TransferQueueError, ValueError):
    """A segment, index or message written by another version or build: `expected`, `found`, `path`."""

    _declared: ClassVar[Mapping[str, Any]] = {"expected": None, "found": None, "path": None}
    expected: Any
    found: Any
    path: str | None


class CorruptSegmentError(TransferQueueError, OSError):
    """A segment, index or message whose content contradicts itself, or that the system removed: `path`."""

    _declared: ClassVar[Mapping[str, Any]] = {"path": None}
    path: str | None


class CorruptCheckpointError(CorruptSegmentError):
    """A checkpoint whose files are not what was written, or say what cannot be: `path`."""


class UntrustedFileError(TransferQueueError, PermissionError):
    """A name that this package uses is held by what is not this user's alone: another user's file, a link, a file that
    others may write to: `path`, and in `uid` whose it is."""

    _declared: ClassVar[Mapping[str, Any]] = {"path": None, "uid": None}
    path: str | None
    uid: int | None


class DataLostError(TransferQueueError, KeyError):
    """Rows whose only copy lived in something that died: `rows` (global indexes), `node`."""

    _declared: ClassVar[Mapping[str, Any]] = {"rows": (), "partition_id": None, "node": None}
    rows: tuple[int, ...]
    partition_id: str | None
    node: str | None


class TransferTimeoutError(TransferQueueError, TimeoutError):
    """The deadline passed first: `timeout_s`, and in `missing` what had not come.

    `holder_pid`: the process that kept a lock all the time; None when it was not a lock that was waited for.
    """

    _declared: ClassVar[Mapping[str, Any]] = {"timeout_s": None, "missing": None, "holder_pid": None}
    timeout_s: float | None
    missing: Any
    holder_pid: int | None


class NodeUnreachableError(TransferTimeoutError):
    """Another node did not answer until the deadline: `node`, and in `cause` what the last attempt met."""

    _declared: ClassVar[Mapping[str, Any]] = {**TransferTimeoutError._declared, "node": None, "cause": None}
    node: str | None
    cause: str | None


class NodeAccessError(TransferQueueError, PermissionError):
    """Another node refused this one: its token or certificate is of another cluster, or missing: `node`."""

    _declared: ClassVar[Mapping[str, Any]] = {"node": None}
    node: str | None


class StorageFullError(TransferQueueError, MemoryError):
    """No room for what was asked: `resource` ("payload", "index", "block table", "lease file", or "session" for one
    that is being made) and the sizes in bytes.

    `leased_bytes` is room that is already freed and only waits for views to be dropped. `reader_pid`: the process whose
    read of the index, begun long ago and not finished, keeps the pages of the index from being used again. `node`: of a
    session of several nodes, the one that is full.
    """

    _declared: ClassVar[Mapping[str, Any]] = {
        "resource": "payload",
        "wanted_bytes": None,
        "total_bytes": None,
        "used_bytes": None,
        "live_bytes": None,
        "leased_bytes": None,
        "free_bytes": None,
        "reader_pid": None,
        "node": None,
    }
    resource: str
    wanted_bytes: int | None
    total_bytes: int | None
    used_bytes: int | None
    live_bytes: int | None
    leased_bytes: int | None
    free_bytes: int | None
    reader_pid: int | None
    node: str | None


class SystemRefusedError(TransferQueueError, OSError):
    """The system refused what a call needs: `errno`, and in `limit` the resource limit of this process that may be in
    the way (``"RLIMIT_NOFILE"``, ``"RLIMIT_FSIZE"``, ``"RLIMIT_AS"``, ``"RLIMIT_DATA"``), `limit_value` its value; None
    when that is not limited."""

    _declared: ClassVar[Mapping[str, Any]] = {"errno": None, "limit": None, "limit_value": None}
    errno: int | None
    limit: str | None
    limit_value: int | None


class MemoryRefusedError(SystemRefusedError, MemoryError):
    """A `SystemRefusedError` for address space or memory of this process."""


class LimitExceededError(TransferQueueError, queue.Full):
    """A put that its partition's limits do not allow: `partition_id`, `limit` (name of the setting), its value `cap`,
    what is `there` and what the put would add (`wanted`); for ``max_version_lag`` the oldest and the newest version.

    `never`: no clear and no consumption would make it fit.
    """

    _declared: ClassVar[Mapping[str, Any]] = {
        "partition_id": None,
        "limit": None,
        "when_exceeded": None,
        "cap": None,
        "there": None,
        "wanted": None,
        "never": False,
    }
    partition_id: str | None
    limit: str | None
    when_exceeded: str | None
    cap: int | None
    there: int | None
    wanted: int | None
    never: bool


class LimitTimeoutError(LimitExceededError, TransferTimeoutError):
    """A `LimitExceededError` after the put waited for `timeout_s` seconds."""

    _declared: ClassVar[Mapping[str, Any]] = {**LimitExceededError._declared, **TransferTimeoutError._declared}


class ClosedError(TransferQueueError, RuntimeError):
    """A call on a session or client that this process closed: `session`."""

    _declared: ClassVar[Mapping[str, Any]] = {"session": None}
    session: str | None


class PickleNotAllowedError(TransferQueueError, ValueError):
    """A stored field needs pickle to be read and `allow_pickle` is off: `field`."""

    _declared: ClassVar[Mapping[str, Any]] = {"field": None}
    field: str | None


class RowDecodeError(TransferQueueError, ValueError):
    """Reading one stored row raised, in code of the object's own class: `field`, `row` (position in the batch)."""

    _declared: ClassVar[Mapping[str, Any]] = {"field": None, "row": None}
    field: str | None
    row: int | None
