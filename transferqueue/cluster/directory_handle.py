"""The directory actor of a session, as other processes see it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

from transferqueue.errors import NodeUnreachableError, SessionNotFoundError

# Not the namespace of any job: jobs share a session by its name, whatever theirs is.
NAMESPACE = "transferqueue"
_ANSWER_S = 10.0


@dataclass(frozen=True)
class ClusterState:
    """What the directory actor says about its session.

    Attributes:
        ended: it is being taken down, or was.
        resource: ``cluster.resource``.
        wanted: the nodes that it spans, by Ray's id -> how they are called.
        started: of them, those whose agent serves.
        errors: of them, what kept an agent from starting.
    """

    ended: bool
    resource: str | None = None
    wanted: dict[str, str] = field(default_factory=dict)
    started: frozenset[str] = frozenset()
    errors: dict[str, BaseException] = field(default_factory=dict)


def directory_name(session: str) -> str:
    """The name of the actor, in `NAMESPACE`."""
    return f"directory:{session}"


def agent_name(session: str, token: str, node_id: str) -> str:
    """The name of a node's agent, in `NAMESPACE`. That of an earlier session of the same name, which may be about
    to go, is another."""
    return f"agent:{session}:{hashlib.sha256(token.encode()).hexdigest()[:12]}:{node_id}"


def find_directory(session: str) -> Any:
    """The handle of the actor; None when there is none (any more)."""
    import ray

    try:
        return ray.get_actor(directory_name(session), namespace=NAMESPACE)
    except ValueError:
        return None


def detached(kind: type, name: str, node_id: str, *, soft: bool, **options: Any) -> Any:
    """An actor class of ours to be started: in `NAMESPACE`, with no CPU, started again by Ray for ever.

    Args:
        node_id: where; with `soft` elsewhere when that node is gone.
        options: further ones of Ray's.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return ray.remote(kind).options(
        name=name,
        namespace=NAMESPACE,
        lifetime="detached",
        num_cpus=0,
        max_restarts=-1,
        scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=node_id, soft=soft),
        **options,
    )


def kill(name: str) -> None:
    """Takes an actor of `NAMESPACE` down for good; quiet when there is none."""
    import ray

    try:
        ray.kill(ray.get_actor(name, namespace=NAMESPACE), no_restart=True)
    except ValueError:
        return


def ask(actor: Any, method: str, *args: Any, timeout_s: float = _ANSWER_S) -> Any:
    """What a method of the actor returns.

    Raises:
        SessionNotFoundError: the actor was taken down. NodeUnreachableError: it does not answer, or is being started
            again.
    """
    import ray.exceptions

    try:
        return ray.get(getattr(actor, method).remote(*args), timeout=timeout_s)
    except ray.exceptions.ActorUnavailableError as error:
        raise NodeUnreachableError(f"the directory is being started again: {error}", timeout_s=timeout_s) from error
    except ray.exceptions.RayActorError as error:
        raise SessionNotFoundError(f"the directory of the session was taken down: {error}") from error
    except ray.exceptions.GetTimeoutError as error:
        raise NodeUnreachableError(
            f"the directory did not answer {method} within {timeout_s:g} s", timeout_s=timeout_s
        ) from error


def directory_endpoint(session: str) -> tuple[str, int]:
    """(host, port) at which the session's directory serves now.

    Raises:
        SessionNotFoundError: the session has ended. NodeUnreachableError: the directory does not answer.
    """
    actor = find_directory(session)
    if actor is None:
        raise SessionNotFoundError(f"session {session!r} has ended: its directory was taken down", session=session)
    host, port = ask(actor, "endpoint")
    return host, port
