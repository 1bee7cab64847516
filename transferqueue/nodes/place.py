"""Where a node is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NodePlace:
    """One node of a cluster session, as the directory knows it.

    Attributes:
        ordinal: its number in the cluster; never another node's.
        host, port: where its agent serves.
        session: the name of its node-session.
        node_id: what the node calls itself; the same when its agent is started again.
        alive: False when it is lost: it was not heard of for too long, or somebody who knows said so.
        incarnation: how often its agent joined.
    """

    ordinal: int
    host: str
    port: int
    session: str
    node_id: str
    alive: bool = True
    incarnation: int = 0

    @property
    def endpoint(self) -> tuple[str, int]:
        """(host, port)."""
        return self.host, self.port

    def __str__(self) -> str:
        return f"node {self.ordinal} ({self.node_id} at {endpoint_text(self.host, self.port)})"


def endpoint_text(host: str, port: int) -> str:
    """``host:port``; ``[host]:port`` for IPv6."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
