"""One process's hold on a session: the lock that says so, and the native store.

Fork: a child shares the parent's lock description, so either's death would go unnoticed while the other lives.
Before a fork a second description is locked; the child keeps that one and the parent closes it: there is no moment at
which the child holds nothing.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
import time
import weakref
from collections.abc import Mapping
from typing import Any

from transferqueue import _native
from transferqueue.errors import CorruptSegmentError, LayoutMismatchError, SessionNotFoundError
from transferqueue.logs import get_logger
from transferqueue.nodes.cluster_file import ClusterFile, read_cluster_file
from transferqueue.storage.names import SessionPaths
from transferqueue.storage.segments import open_segments
from transferqueue.storage.session_dir import (
    SessionDescription,
    check_private,
    host_id,
    pid_namespace,
    read_description,
    remove_if_dead,
    remove_session,
)
from transferqueue.storage.session_lock import SessionLock

_log = get_logger("storage")
MADE_WITHIN_S = 30.0
# A session that is being made or removed is without its description for microseconds.
_UNDESCRIBED_S = 2.0
_RETRY_S = 0.01
_attached: weakref.WeakSet[Attachment] = weakref.WeakSet()
_forking = threading.local()
_IMPORT_ROUNDS = 100
# CPython's locks of the modules that any thread is importing, by name; there is no public list of them.
_import_locks: Mapping[str, Any] = getattr(getattr(importlib, "_bootstrap", None), "_module_locks", {})


class Attachment:
    """Attached to one session until `detach` or `end`.

    Attributes:
        paths: the session's names.
        description: what its creator wrote.
        store: the native store; safe from many threads.
        cluster: what makes this session one node's part of a larger one, as it stood when we attached; None: it is no
            such part. Endpoints move: `cluster_now`.
    """

    def __init__(
        self,
        paths: SessionPaths,
        description: SessionDescription,
        lock: SessionLock,
        store: _native.Store,
        *,
        observer: bool = False,
    ) -> None:
        self.paths = paths
        self.description = description
        self.store = store
        self.cluster = read_cluster_file(paths)
        self._lock: SessionLock | None = lock
        self._observer = observer
        self._guard = threading.Lock()
        _attached.add(self)

    @property
    def session_name(self) -> str:
        """What users call the session: the cluster's name where this is one node's part, else its own."""
        return self.paths.name if self.cluster is None else self.cluster.cluster

    @property
    def closed(self) -> bool:
        """Whether this process let go of the session."""
        return self._lock is None

    def cluster_now(self) -> ClusterFile | None:
        """`cluster` as it stands now; the last that was seen while it cannot be read, as when the session ended."""
        with contextlib.suppress(OSError):
            self.cluster = read_cluster_file(self.paths) or self.cluster
        return self.cluster

    def detach(self) -> None:
        """Lets go; the last process out removes the session (an observer never does). Idempotent; views stay valid."""
        with self._guard:
            lock, self._lock = self._lock, None
            if lock is None:
                return
            _attached.discard(self)
            try:
                self.store.close()
            finally:
                try:
                    if not self._observer:
                        self._remove(lock, if_alone=True)
                finally:
                    lock.close()

    def end(self) -> None:
        """Ends the session for everybody and removes it: calls of others raise SessionNotFoundError from now on; views
        that anybody holds stay readable. Idempotent."""
        with self._guard:
            lock, self._lock = self._lock, None
            if lock is None:
                return
            _attached.discard(self)
            try:
                self.store.end_session()
                self.store.close()
            finally:
                try:
                    self._remove(lock)
                finally:
                    lock.close()

    def _remove(self, lock: SessionLock, *, if_alone: bool = False) -> None:
        # Closed under us, and the hold with it: if others are attached, the last one out removes it.
        if not lock.is_open():
            remove_if_dead(self.paths)
        # The hold is given up first, so of two that leave at once the later one finds itself alone.
        elif (not if_alone or lock.try_exclusive()) and lock.is_current():
            remove_session(self.paths)

    def _second_hold(self) -> SessionLock | None:
        if self._lock is None:
            return None
        try:
            second = SessionLock(self.paths.lock)
        except OSError:
            return None  # ended meanwhile: the child finds out at its next call
        if second.try_shared() and second.is_current():
            return second
        second.close()
        return None

    def _continue_in_child(self, second: SessionLock | None) -> None:
        self._guard = threading.Lock()
        if self._lock is not None:
            self._lock.close()
            self._lock = second


def _before_fork() -> None:
    if _attached:
        _finish_imports()
    _forking.holds = [(attachment, attachment._second_hold()) for attachment in list(_attached)]


def _finish_imports() -> None:
    # A module that another thread is importing at the fork stays locked in the child for ever. Ours come when a name is
    # first used, and so do the libraries that they need. To import what has begun is to wait for it; it may begin more.
    import transferqueue

    names = transferqueue.LAZY_MODULES
    for _ in range(_IMPORT_ROUNDS):
        for name in names:
            with contextlib.suppress(Exception):  # who imports it is told
                importlib.import_module(name)
        names = [name for name in list(_import_locks) if name not in sys.modules or _is_being_imported(name)]
        if not names:
            return


def _is_being_imported(name: str) -> bool:
    return bool(getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False))


def _after_fork_in_parent() -> None:
    for _, second in _forking.__dict__.pop("holds", ()):
        if second is not None:
            second.close()


def _after_fork_in_child() -> None:
    for attachment, second in _forking.__dict__.pop("holds", ()):
        attachment._continue_in_child(second)


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)


def not_found(name: str) -> SessionNotFoundError:
    """The error for a session that is not there."""
    return SessionNotFoundError(
        f"there is no session {name!r} of this user on this machine: it was never started, has ended, or runs "
        f"elsewhere; `tq ls` lists the sessions, transferqueue.init(session={name!r}) starts one of that name",
        session=name,
    )


def attach(name: str, *, observer: bool = False, made_within_s: float = MADE_WITHIN_S) -> Attachment:
    """Joins a session that exists; waits while it is being made, for `made_within_s` at most.

    Args:
        observer: never removes the session when it lets go, not even as the last one (for tools that look).

    Raises:
        SessionNotFoundError: no such session, or it has ended.
        LayoutMismatchError: of another version or build, or of another pid namespace.
        CorruptSegmentError: a segment or the description is missing or damaged; named.
        UntrustedFileError: a name of the session is held by something that is not this user's alone.
    """
    paths = SessionPaths.of(name)
    lock, description = _hold(paths, made_within_s)
    try:
        _check(description)
        try:
            descriptors = open_segments(paths, description.payload_directory, description.spill_directory)
        except CorruptSegmentError:
            if not lock.is_current():
                raise not_found(name) from None  # it ended while we looked
            raise
        try:
            store = _native.Store(
                paths.directory,
                descriptors.control,
                descriptors.table,
                descriptors.payload,
                session=name,
                spill_fd=descriptors.spill,
            )
        except SessionNotFoundError:
            _check_index(paths, lock)
            raise
        except (CorruptSegmentError, LayoutMismatchError):
            if not lock.is_current():
                raise not_found(name) from None  # the index is that of another session, which is being made here
            raise
        finally:
            descriptors.close()
    except BaseException:
        # A failed attach changes nothing: the lock goes without a look at whether we were the last.
        lock.close()
        raise
    if store.ended:
        store.close()
        lock.close()
        raise not_found(name)
    return Attachment(paths, description, lock, store, observer=observer)


def _hold(paths: SessionPaths, made_within_s: float) -> tuple[SessionLock, SessionDescription]:
    began_s = described_s = time.monotonic()
    while True:
        try:
            check_private(paths)
            lock = SessionLock(paths.lock)
        except (FileNotFoundError, NotADirectoryError):
            raise not_found(paths.name) from None
        try:
            if lock.try_shared() and lock.is_current():
                description = read_description(paths)
                if description is not None:
                    return lock, description
                # Half made: either its maker holds the lock too and will finish, or it died.
                if lock.try_exclusive():
                    raise not_found(paths.name)
        except BaseException:
            lock.close()
            raise
        lock.close()
        now_s = time.monotonic()
        if os.path.exists(paths.hidden_description) or not os.path.exists(paths.lock):
            described_s = now_s
        if now_s > described_s + _UNDESCRIBED_S:
            raise CorruptSegmentError(
                f"session {paths.name!r} exists but its description {paths.description} is missing: it was removed "
                "from outside. Processes that are attached go on; end the session and start a new one",
                path=paths.description,
            )
        if now_s > began_s + made_within_s:
            raise SessionNotFoundError(
                f"session {paths.name!r} is being made or removed by another process for {made_within_s:.3g} s; "
                "look at that process, or try again",
                session=paths.name,
            )
        time.sleep(_RETRY_S)


def _check_index(paths: SessionPaths, lock: SessionLock) -> None:
    # A session that ends hides its description before anything of it goes: somebody else took the index.
    missing = not os.path.exists(paths.index_file)
    if missing and lock.is_current() and os.path.exists(paths.description):
        raise CorruptSegmentError(
            f"session {paths.name!r} exists but its index {paths.index_file} is missing: it was removed from outside. "
            "Processes that are attached go on; end the session and start a new one",
            path=paths.index_file,
        ) from None


def _check(description: SessionDescription) -> None:
    if description.layout_version != _native.LAYOUT_VERSION:
        raise LayoutMismatchError(
            f"session {description.name!r} has memory layout {description.layout_version}, this build has "
            f"{_native.LAYOUT_VERSION}; use the version that made it",
            expected=_native.LAYOUT_VERSION,
            found=description.layout_version,
        )
    if description.host != host_id():
        raise LayoutMismatchError(
            f"session {description.name!r} was made by another machine, or before this one was started again "
            f"({description.host}, this is {host_id()}): nothing of it is used; `tq clean` removes it",
            expected=host_id(),
            found=description.host,
        )
    ours = pid_namespace()
    if description.pid_namespace != ours:
        raise LayoutMismatchError(
            f"session {description.name!r} belongs to pid namespace {description.pid_namespace}, this process is in "
            f"{ours} (another container?): neither could see whether the other's processes live. Start the containers "
            "with one pid namespace (for docker: --pid=container:NAME) or use a session of this container's own",
            expected=description.pid_namespace,
            found=ours,
        )


def remove_quietly(paths: SessionPaths, lock: SessionLock) -> None:
    """Undoes a creation that failed half-way, whatever else fails on the way."""
    try:
        remove_session(paths, lock=lock)
    except OSError as error:
        _log.warning("what was made of session %r could not be removed (%s); `tq clean` will", paths.name, error)
    finally:
        lock.close()
