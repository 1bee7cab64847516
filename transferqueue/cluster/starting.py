"""Starting a session that spans the nodes of a Ray cluster, joining one, and waiting for this node's part of it."""

from __future__ import annotations

import secrets
import time
from typing import Any

from transferqueue.cluster.cluster_spec import ClusterSpec, config_of
from transferqueue.cluster.directory_handle import (
    ClusterState,
    ask,
    detached,
    directory_name,
    find_directory,
)
from transferqueue.cluster.ray_nodes import living_nodes, own_node_id
from transferqueue.cluster.ray_registry import ray_is_running
from transferqueue.config import Config
from transferqueue.config_sources import Given
from transferqueue.errors import NodeUnreachableError, SessionNotFoundError, TransferQueueError, TransferTimeoutError
from transferqueue.logs import get_logger

_log = get_logger("cluster")
_STARTED_WITHIN_S = 180.0
_ENDED_WITHIN_S = 30.0
_LOOK_S = 0.1
_MOST_TRIES = 20


def spans_nodes(config: Config) -> bool:
    """Whether a session that is made here now is to span the nodes of the Ray cluster.

    Raises:
        ValueError: ``cluster.enabled`` is true and Ray is not initialised.
    """
    enabled = config.cluster.enabled
    if not ray_is_running():
        if enabled:
            raise ValueError(
                "cluster.enabled is true, but Ray is not initialised: call ray.init(address=...) first, or start "
                "`tq node` on each machine and join its session by name"
            )
        return False
    return len(living_nodes()) > 1 if enabled is None else enabled


def open_cluster(name: str, given: Given, *, adopt: bool) -> bool:
    """Starts the session `name` on all nodes unless it runs. Returns when this node's part of it can be joined; of a
    new one, when all can.

    Args:
        given: the configuration, for a new one.
        adopt: whether one that nobody uses any more, but that has not been taken down yet, is taken over with its rows;
            else it is replaced by an empty one.

    Returns:
        Whether this process is its creator: it started it, or took it over.

    Raises:
        ImportError: pyarrow is not installed.
        SessionNotFoundError: it does not span this node.
        StorageFullError, OSError, ...: an agent could not start, and why; nothing is left of the session.
        TransferTimeoutError: agents did not start in time.
    """
    from transferqueue.nodes.flight_library import flight

    flight()  # says what to install
    spec = ClusterSpec(name, secrets.token_hex(32), dict(given.values), given.of_creator(), own_node_id())
    config_of(spec).cluster.check()
    for _ in range(_MOST_TRIES):
        actor = find_directory(name)
        created = actor is None
        if created:
            try:
                actor = _start_directory(spec)
            except ValueError:
                continue  # somebody else was quicker
        try:
            if not created and ask(actor, "end_if_unused" if not adopt else "adopt"):
                if adopt:
                    _wait_for_nodes(name, actor, everywhere=False)
                    return True
                _wait_for_end(name)
                continue
            _wait_for_nodes(name, actor, everywhere=created)
            return created
        except BaseException as error:
            if created:
                _give_up(actor)
                raise
            if not isinstance(error, SessionNotFoundError) or error.session is not None:
                raise
            _wait_for_end(name)  # it was about to be taken down when we came
    raise SessionNotFoundError(f"session {name!r} ends faster than it can be joined; try again", session=name)


def is_running(name: str) -> bool:
    """Whether a session of that name spans nodes of this Ray cluster, this one or not."""
    actor = find_directory(name)
    try:
        return actor is not None and not ask(actor, "look").ended
    except NodeUnreachableError:
        return True  # being started again
    except SessionNotFoundError:
        return False


def is_starting_here(name: str) -> bool:
    """Whether session `name` spans this node and has not ended: its part here will be there soon.

    Raises:
        SessionNotFoundError: it does not span this node. Others: why it could not start here.
    """
    actor = find_directory(name)
    if actor is None:
        return False
    try:
        state: ClusterState = ask(actor, "look")
    except NodeUnreachableError:
        return True  # being started again
    except SessionNotFoundError:
        return False
    if not state.ended:
        _check_here(name, state)
    return not state.ended


def _give_up(actor: Any) -> None:
    """Of a session that could not be started: nothing stays."""
    try:
        ask(actor, "end")
    except (NodeUnreachableError, SessionNotFoundError) as error:
        _log.info("the directory of a session that could not be started is gone: %s", error)


def _check_here(name: str, state: ClusterState) -> None:
    own = own_node_id()
    if own in state.errors:
        raise _named(state.wanted.get(own, own), state.errors[own])
    if own not in state.wanted and state.wanted and state.resource is not None and _is_alive(own):
        raise SessionNotFoundError(
            f"session {name!r} does not span this node: cluster.resource is {state.resource!r}, which this node has "
            f"none of. It spans {', '.join(sorted(state.wanted.values()))}",
            session=name,
        )


def _is_alive(node_id: str) -> bool:
    return any(node.node_id == node_id for node in living_nodes())


def _start_directory(spec: ClusterSpec) -> Any:
    from transferqueue.cluster.directory_actor import DirectoryActor

    # Other jobs may share the session. It goes when nobody uses the session, see `DirectoryActor`.
    actor = detached(DirectoryActor, directory_name(spec.name), spec.creator_node, soft=True, max_concurrency=16)
    return actor.remote(spec)


def _wait_for_nodes(name: str, actor: Any, *, everywhere: bool) -> None:
    own = own_node_id()
    until_s = time.monotonic() + _STARTED_WITHIN_S
    missing: list[str] = []
    while time.monotonic() < until_s:
        state: ClusterState = ask(actor, "look", timeout_s=_STARTED_WITHIN_S)
        if state.ended:
            raise SessionNotFoundError(f"session {name!r} has ended")
        _check_here(name, state)
        if everywhere and state.errors:
            node_id, error = next(iter(state.errors.items()))
            raise _named(state.wanted.get(node_id, node_id), error)
        missing = [
            called
            for node_id, called in state.wanted.items()
            if node_id not in state.started and (everywhere or node_id == own)
        ]
        if state.wanted and not missing:
            return
        time.sleep(_LOOK_S)
    raise TransferTimeoutError(
        f"the services of session {name!r} did not start within {_STARTED_WITHIN_S:g} s on {', '.join(missing)}",
        timeout_s=_STARTED_WITHIN_S,
        missing=missing,
    )


def _named(node: str, error: BaseException) -> BaseException:
    """The same error, saying which node it is of."""
    if isinstance(error, TransferQueueError):
        return type(error)(f"node {node}: {error.message}", **{**error.details, "node": node})
    if isinstance(error, OSError) and error.errno is None:
        return OSError(f"node {node}: {error}")
    if isinstance(error, OSError):
        return OSError(error.errno, f"node {node}: {error.strerror}", error.filename)
    return error


def _wait_for_end(name: str) -> None:
    until_s = time.monotonic() + _ENDED_WITHIN_S
    while find_directory(name) is not None:
        if time.monotonic() > until_s:
            raise TransferTimeoutError(
                f"session {name!r} has ended, but was not taken down within {_ENDED_WITHIN_S:g} s",
                timeout_s=_ENDED_WITHIN_S,
                missing=name,
            )
        time.sleep(_LOOK_S)
