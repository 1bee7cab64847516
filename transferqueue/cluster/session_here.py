"""From the name of a session to the part of it that this process attaches to."""

from __future__ import annotations

import os
import time

from transferqueue.cluster.ray_registry import ray_is_running
from transferqueue.errors import TransferTimeoutError
from transferqueue.nodes.local_sessions import LocalSession, local_sessions, part_here
from transferqueue.storage.names import SessionPaths

_LOOK_S = 0.05
# A node that joined the Ray cluster a moment ago gets its service first.
_STARTS_WITHIN_S = 120.0


def session_here(name: str, made_within_s: float) -> str:
    """The session of this machine that attaching to `name` means: the one of that name, else this node's part of the
    session that spans nodes under that name. Waits while that part is being made, or will be.

    Args:
        name: as users say it; a part's own name is taken as it is.
        made_within_s: seconds to wait for one that is being made.

    Returns:
        `name` itself where nothing of it is known here: attaching says so.

    Raises:
        SessionNotFoundError: the session does not span this node, or several of its nodes are on this machine and
            nothing says which one is meant. TransferTimeoutError: its service does not start on this node.
    """
    began_s = time.monotonic()
    while True:
        if os.path.isdir(SessionPaths.of(name).directory):
            return name
        found = _own(name)
        waited_s = time.monotonic() - began_s
        if found is not None and (found.file.incarnation or waited_s > made_within_s):
            return found.paths.name
        if found is None:
            if not ray_is_running():
                return name
            from transferqueue.cluster.starting import is_starting_here

            # Asked anew each time: it may end, or this node may turn out not to belong to it.
            if not is_starting_here(name):
                return name if (found := _own(name)) is None else found.paths.name
            if waited_s > _STARTS_WITHIN_S:
                raise TransferTimeoutError(
                    f"the service of session {name!r} did not start on this node within {_STARTS_WITHIN_S:g} s",
                    timeout_s=_STARTS_WITHIN_S,
                    missing=name,
                )
        time.sleep(_LOOK_S)


def _own(name: str) -> LocalSession | None:
    if ray_is_running():
        from transferqueue.cluster.ray_nodes import own_node_id

        own = [session for session in local_sessions(name, node_id=own_node_id()) if session.in_use]
        if own:
            return own[-1]
    found = local_sessions(name)
    if ray_is_running():
        # Of nodes that Ray does not know: made by `tq node`.
        found = [session for session in found if not _is_ray_node_id(session.file.node_id)]
    return part_here(found)


def _is_ray_node_id(node_id: str) -> bool:
    return len(node_id) == 56 and set(node_id) <= set("0123456789abcdef")
