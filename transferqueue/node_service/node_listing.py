"""``tq nodes``."""

from __future__ import annotations

import json
from dataclasses import asdict

from transferqueue.errors import SessionNotFoundError
from transferqueue.node_service.node_report import NodeStats, list_nodes
from transferqueue.nodes.local_sessions import clusters_here, local_sessions
from transferqueue.nodes.place import endpoint_text
from transferqueue.sizes import format_size
from transferqueue.storage.attachment import attach
from transferqueue.text_table import show_table

_HEADER = ["node", "state", "name", "endpoint", "session", "used", "of", "rows", "clients", "home of"]
_MOST_NAMES = 5


def print_nodes(session: str | None, *, as_json: bool = False) -> int:
    """Prints the nodes of a session that has one on this machine. Returns the exit status.

    Raises:
        ValueError: `session` is None, and there is not just one. SessionNotFoundError: none of that name is here.
        NodeUnreachableError: the directory does not answer.
    """
    if session is None:
        names = clusters_here()
        if len(names) != 1:
            raise ValueError(f"say which session with --session; on several nodes are: {', '.join(names) or 'none'}")
        session = names[0]
    found = local_sessions(session)
    if not found:
        raise SessionNotFoundError(
            f"there is no node of a session {session!r} on this machine; `tq ls` lists its sessions", session=session
        )
    attachment = attach(found[0].paths.name, observer=True)
    try:
        nodes = list_nodes(attachment)
    finally:
        attachment.detach()
    if as_json:
        print(json.dumps({"session": session, "nodes": [asdict(node) for node in nodes]}, indent=2))
        return 0
    print(f"session {session}")
    show_table(_HEADER, [_row(node) for node in nodes])
    return 0


def _single(node: NodeStats) -> str:
    """What would go with this node, where nothing should."""
    parts = [
        f"{count} {what}"
        for count, what in ((node.single_rows, "rows"), (node.single_partitions, "partitions"))
        if count
    ]
    return f", one copy of {' and '.join(parts)}" if parts else ""


def _row(node: NodeStats) -> list[str]:
    names = ", ".join(node.partitions[:_MOST_NAMES])
    more = len(node.partitions) - _MOST_NAMES
    return [
        str(node.ordinal),
        ("alive" if node.alive else "lost") + (", here" if node.here else "") + _single(node),
        node.node_id if len(node.node_id) <= 20 else f"{node.node_id[:16]}...",
        endpoint_text(node.host, node.port),
        node.session,
        "" if node.used_bytes is None else format_size(node.used_bytes),
        "" if node.total_bytes is None else format_size(node.total_bytes),
        "" if node.rows is None else str(node.rows),
        "" if node.clients is None else str(node.clients),
        names + (f" and {more} more" if more > 0 else ""),
    ]
