"""This process's session: created, joined, shared with children, closed.

A process has one session at a time. ``init`` decides which: the one named, else the one in the environment
(``TRANSFERQUEUE_SESSION``, which a creator exports to its children), else the Ray cluster's when Ray is initialised,
else a new one.
"""

from __future__ import annotations

import atexit
import copyreg
import os
import threading
import time
import types
from collections.abc import Mapping
from contextlib import nullcontext
from multiprocessing import util as multiprocessing_util
from typing import TYPE_CHECKING, Any, overload

from transferqueue import cluster, logs
from transferqueue.config import (
    SESSION_VARIABLE,
    Config,
    build_config,
    explicit_values,
    process_keys,
    read_environment,
)
from transferqueue.config_sources import Given
from transferqueue.errors import SessionNotFoundError
from transferqueue.lease_report import LeaseStats, list_leases
from transferqueue.node_service.node_report import NodeStats, end_nodes, list_nodes
from transferqueue.process_state import ProcessState
from transferqueue.refusals import typed_refusals
from transferqueue.service import StorageService
from transferqueue.session_notes import closed_error, named_by_the_environment, warn_of_ignored
from transferqueue.storage.attachment import MADE_WITHIN_S, Attachment
from transferqueue.storage.attachment import attach as attach_to
from transferqueue.storage.cleaning import remove_dead_sessions
from transferqueue.storage.creation import create_session
from transferqueue.storage.janitor import ensure_janitor
from transferqueue.storage.names import SessionPaths, check_session_name, new_session_name
from transferqueue.storage.origin import read_origin, write_origin
from transferqueue.storage.session_dir import is_in_use, remove_if_dead
from transferqueue.waiting import deadline, is_over

if TYPE_CHECKING:
    from transferqueue.client import TransferQueueClient

_MAX_TRIES = 50
_APPEARS_LOOK_S = 0.05  # one look costs some system calls


class Session:
    """One process's hold on a session. Made by `init` and `attach`; usable as a context manager that closes.

    Attributes:
        name: unique among this user's sessions on this machine; the same on all nodes that it spans.
        config: the session's configuration with this process's own choices.
        creator: whether closing it here ends it for everybody.
        config_sources: dotted key -> where its value comes from: ``default``, ``init argument``, ...
    """

    def __init__(
        self, attachment: Attachment, config: Config, *, creator: bool, sources: Mapping[str, str] | None = None
    ) -> None:
        self.name = attachment.session_name
        self.config = config
        self.creator = creator
        self.config_sources = dict(sources or {})
        self.attachment = attachment
        self.service = StorageService(attachment.paths, attachment.store, config)
        self._client: TransferQueueClient | None = None
        self._guard = threading.RLock()

    @property
    def client(self) -> TransferQueueClient:
        """This process's client of the session.

        Raises:
            ClosedError: the session was closed in this process.
        """
        with self._guard:
            if self.closed:
                raise closed_error(self.name)
            if self._client is None or self._client.closed:
                from transferqueue.client.joined import client_of

                self._client = client_of(self.attachment, self.config, self.service)
                # Not the client's own __reduce__: it knows nothing of sessions and who joins them.
                copyreg.pickle(type(self._client), _reduced_client)
            return self._client

    def is_called(self, name: str) -> bool:
        """Whether `name` means this session: its own, or the one that its part on this node has."""
        return name in (self.name, self.attachment.paths.name)

    @property
    def closed(self) -> bool:
        """Whether this process closed it."""
        return self.attachment.closed

    def leases(self, partition_id: str | None = None) -> list[LeaseStats]:
        """Who holds views of what, in all processes, oldest first: what ``tq leases`` shows.

        Args:
            partition_id: only blocks of this one; what was cleared from it and is still held is among them.

        Raises:
            ClosedError: the session was closed in this process. SessionNotFoundError: it has ended.
        """
        return list_leases(self.attachment.store, partition_id)

    def nodes(self) -> list[NodeStats]:
        """The nodes that the session spans, lost ones included, by ordinal; none for a session of one machine.

        Raises:
            ClosedError: the session was closed in this process. NodeUnreachableError: the directory does not answer.
        """
        if self.closed:
            raise closed_error(self.name)
        return list_nodes(self.attachment)

    def close(self) -> None:
        """Lets go of the session; by its creator, ends it for everybody: calls of others raise SessionNotFoundError
        from then on. Tensors that anybody holds stay readable. Idempotent."""
        with _process.guard:
            if _process.session is self:
                _process.session = None
                _process.closed_name = self.name
            self._leave(end=self.creator)

    def _leave(self, *, end: bool) -> None:
        with self._guard:
            if self.closed:
                return
            try:
                self.service.stop()
                if self._client is not None:
                    self._client.close()
            finally:
                if end:
                    _withdraw(self.name)
                    if self.attachment.cluster is not None:
                        end_nodes(self.attachment)
                    self.attachment.end()
                else:
                    self.attachment.detach()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        # In another process: the session as that one has joined it.
        return attach, (self.name,)

    def __repr__(self) -> str:
        state = "closed" if self.closed else "creator" if self.creator else "joined"
        return f"Session({self.name!r}, {state})"

    def _continue_in_child(self) -> None:
        self._guard = threading.RLock()
        # A child that ends must not take the session of its parent down.
        self.creator = False


_process = ProcessState()


@overload
def init(
    config: Config | Mapping[str, Any] | None = ..., *, session: str | None = ..., adopt: bool = ...
) -> Session: ...
# ``**{"storage.size": "4GiB"}`` could name any parameter, as far as a type checker knows.
@overload
def init(config: Any = ..., *, session: str | None = ..., adopt: Any = ..., **overrides: Any) -> Session: ...
@typed_refusals("could not make or join a session")
def init(
    config: Config | Mapping[str, Any] | None = None,
    *,
    session: str | None = None,
    adopt: bool = True,
    **overrides: Any,
) -> Session:
    """Creates or joins this process's session; called again, returns the same one.

    Of the processes that name a session, the first is its creator: its ``close()`` (or the end of its ``with`` block)
    ends the session for everybody. The others are joiners: theirs only lets go. ``Session.creator`` says which one this
    is. A process that must never create one, only join, uses `attach`.

    Args:
        config: a mapping (nested or with dotted keys) or a `Config`; `Config` lists the keys. Most belong to the
            session and its creator; a joiner chooses only those that belong to a process (``read.*``, ``put.*``,
            ``allow_pickle``, ``logging.*``). What is given and does not take effect is logged as a warning.
        session: the name to join, or to create when there is none. Without it: the environment's, the Ray cluster's, or
            a new one.
        adopt: whether a named session whose processes are all dead is taken over with its rows; else it starts empty.
        overrides: dotted keys, ``init(**{"storage.size": "4GiB"})``.

    Raises:
        ValueError: an unknown key or a bad value, or this process is in a session of another name.
        SessionNotFoundError: the session that the environment names is gone.
        StorageFullError: the machine has too little room for ``storage.size``; both sizes are named.
        SystemRefusedError: the system, which names the limit in the way.
    """
    explicit = explicit_values(config, overrides)
    given = Given.by(config, overrides)
    build_config(given.values)  # refuses bad values before anything is made
    if session is not None:
        check_session_name(session)
    with _process.guard:
        current = _process.live_session()
        if current is not None:
            if session is not None and not current.is_called(session):
                raise ValueError(
                    f"this process is in session {current.name!r}; close it before init(session={session!r})"
                )
            warn_of_ignored(current.name, current.config, current.attachment.description.sampler, explicit)
            return current
        _leave_ended_session()
        name = session or read_environment()[0]
        remove_dead_sessions(except_name=name)
        if session is not None:
            made = _open_named(session, given, adopt=adopt)
        elif name is not None:
            with named_by_the_environment():
                made = _join(name, given)
        else:
            made = _open_cluster_session(given) if cluster.ray_is_running() else _create(new_session_name(), given)
        _take_over(made)
        warn_of_ignored(made.name, made.config, made.attachment.description.sampler, explicit)
        return made


@typed_refusals("could not join the session")
def attach(name: str, *, timeout: float | None = 0.0) -> Session:
    """Joins a session that exists and never creates one: closing it here lets go and ends nothing. Idempotent.

    Args:
        name: the session's name.
        timeout: seconds to wait for its creator to start it; 0: an error at once (one that is being made at this moment
            is waited for); None: for ever.

    Raises:
        SessionNotFoundError: there is none of that name (within `timeout`), or this process is in another one (both are
            named).
        SystemRefusedError: as `init`.
    """
    check_session_name(name)
    until_s = deadline(timeout)
    while True:
        try:
            return _attach_now(name, min(timeout or MADE_WITHIN_S, MADE_WITHIN_S))
        except SessionNotFoundError as error:
            # Only what is not there may come; there is no word to sleep on before the session exists.
            if error.found is not None or timeout == 0:
                raise
            if is_over(until_s):
                raise SessionNotFoundError(f"waited {timeout} s: {error.message}", session=name) from None
        time.sleep(_APPEARS_LOOK_S)


def _attach_now(name: str, made_within_s: float) -> Session:
    with _process.guard:
        current = _process.live_session()
        if current is not None:
            if not current.is_called(name):
                raise SessionNotFoundError(
                    f"session {name!r} was asked for, but this process is attached to session {current.name!r}; a "
                    "process has one session at a time: close that one first, or use metadata of it",
                    session=name,
                    found=current.name,
                )
            return current
        _leave_ended_session()
        return _take_over(_join(name, Given.by(None, {}), made_within_s))


def current_session() -> Session:
    """This process's session. Joins the one in the environment, or the Ray cluster's, when there was none yet.

    Raises:
        ClosedError: it was closed in this process.
        SessionNotFoundError: there is nothing to join; call `init`.
    """
    session = _process.session
    if session is not None and not session.closed:
        return session
    with _process.guard:
        if _process.session is not None and not _process.session.closed:
            return _process.session
        if _process.closed_name is not None:
            raise closed_error(_process.closed_name)
        named = read_environment()[0]
        name = named or cluster.find_session()
        if name is None:
            where = (
                "in the controller (the driver), before or after the workers start: they find its session by themselves"
                if cluster.is_ray_worker()
                else "first"
            )
            raise SessionNotFoundError(f"this process has no session yet: call transferqueue.init() {where}")
        with named_by_the_environment() if named else nullcontext():
            joined = attach(name)
        return joined


def live_session() -> Session | None:
    """This process's session, if it has one that was neither closed here nor ended by its creator. Joins nothing."""
    return _process.live_session()


def get_client() -> TransferQueueClient:
    """This process's client of its session. A process that has none yet joins the one that ``TRANSFERQUEUE_SESSION``
    names, or its node's in a Ray cluster.

    Raises:
        ClosedError: the session was closed in this process.
        SessionNotFoundError: there is nothing to join; call `init`.
    """
    return current_session().client


def close() -> None:
    """Closes this process's session, see `Session.close`. Quiet when there is none."""
    with _process.guard:
        if _process.session is not None:
            _process.session.close()


def _client_in(name: str) -> TransferQueueClient:
    return attach(name).client


def _reduced_client(client: TransferQueueClient) -> tuple[Any, ...]:
    return _client_in, (client.session,)


def _take_over(session: Session) -> Session:
    try:
        logs.configure(session.config.logging.level)
        if session.creator:
            session.service.start()
        if cluster.ray_is_running():
            ensure_janitor(session.attachment.paths.name)
    except BaseException:
        session._leave(end=session.creator)
        raise
    if session.creator:
        os.environ[SESSION_VARIABLE] = session.name
    _process.session = session
    _process.closed_name = None
    return session


def _leave_ended_session() -> None:
    session, _process.session = _process.session, None
    if session is not None:
        session._leave(end=False)


def _withdraw(name: str) -> None:
    if os.environ.get(SESSION_VARIABLE) == name:
        del os.environ[SESSION_VARIABLE]
    cluster.forget_session(name)


def _create(name: str, given: Given) -> Session:
    session = _try_create(name, given)
    if session is None:
        raise SessionNotFoundError(
            f"the name of session {name!r} is taken by something that is no session of this user (see /dev/shm)",
            session=name,
        )
    return session


def _try_create(name: str, given: Given) -> Session | None:
    config = build_config(given.values)
    cluster.spans_nodes(config)  # refuses what cannot be
    sources = given.of_creator()
    attachment = create_session(name, config, sources)
    return None if attachment is None else Session(attachment, config, creator=True, sources=sources)


def _join(name: str, given: Given, made_within_s: float = MADE_WITHIN_S) -> Session:
    attachment = attach_to(cluster.session_here(name, made_within_s), made_within_s=made_within_s)
    own = set(process_keys())
    try:
        base = build_config(attachment.description.config)
        config = build_config({key: value for key, value in given.values.items() if key in own}, base)
        origin = read_origin(attachment.paths)
        sources = given.of_joiner(origin.sources, adopted=origin.adopter_pid is not None)
        return Session(attachment, config, creator=False, sources=sources)
    except BaseException:
        attachment.detach()
        raise


def _open_named(name: str, given: Given, *, adopt: bool) -> Session:
    """Joins the session of that name, takes it over when its processes are all dead, creates it when there is none."""
    paths = SessionPaths.of(name)
    if not os.path.isdir(paths.directory):
        if cluster.spans_nodes(build_config(given.values)):
            return _open_spanning(name, given, adopt=adopt)
        if (here := cluster.session_here(name, MADE_WITHIN_S)) != name:
            return _join(here, given)
    for _ in range(_MAX_TRIES):
        if not adopt:
            remove_if_dead(paths)
        dead = not is_in_use(paths)
        try:
            session = _join(name, given)
        except SessionNotFoundError:
            remove_if_dead(paths)  # half made by somebody who died
            made = _try_create(name, given)
            if made is not None:
                return made
            continue  # somebody else was quicker
        # Of several that find it dead at once, the one that gets the service is its new creator.
        session.creator = session.service.start() and dead
        if session.creator:
            creators = read_origin(paths).sources
            write_origin(paths, creators, adopter_pid=os.getpid())
            session.config_sources = given.of_joiner(creators, adopted=True)
        return session
    return _create(name, given)


def _open_spanning(name: str, given: Given, *, adopt: bool) -> Session:
    """Joins the session of that name that spans the nodes of the Ray cluster, or starts it."""
    creator = cluster.open_cluster(name, given, adopt=adopt)
    session = _join(name, given)
    session.creator = creator
    return session


def _open_cluster_session(given: Given) -> Session:
    """Joins the session registered for this node or for all, or creates and registers one."""
    spans = cluster.spans_nodes(build_config(given.values))
    for _ in range(_MAX_TRIES):
        registered = cluster.find_session()
        if registered is not None:
            try:
                return _join(registered, given)
            except SessionNotFoundError:
                if cluster.is_running(registered):
                    raise  # on other nodes than this one
                cluster.forget_session(registered)
        if spans:
            session = _open_spanning(new_session_name(), given, adopt=True)
            stands = cluster.register_cluster_session(session.name)
        else:
            session = _create(new_session_name(), given)
            stands = cluster.register_session(session.name)
        if stands == session.name:
            return session
        session.close()  # somebody else was quicker
    raise SessionNotFoundError("the Ray cluster's session changes faster than this process can join it; try again")


def _at_exit() -> None:
    # Not close(): a creator that merely exits leaves the session to the remaining clients; the last one out removes it.
    session, _process.session = _process.session, None
    if session is not None:
        # A thread or a finalizer that calls on is told so. If it joined anew, as the environment would let it do,
        # the last other process to leave would find the session in use and not remove it, and we leave no second time.
        _process.closed_name = session.name
        session._leave(end=False)


def _after_fork_in_child() -> None:
    _process.guard = threading.RLock()
    _process.closed_name = None  # it was the parent that closed
    if _process.session is not None:
        _process.session._continue_in_child()


def _in_multiprocessing_child(_: object) -> None:
    # Forked children of multiprocessing end by os._exit: only their finalizers run, not atexit.
    multiprocessing_util.Finalize(None, _at_exit, exitpriority=0)


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_after_fork_in_child)
multiprocessing_util.register_after_fork(_process, _in_multiprocessing_child)
