"""The nodes of a Ray cluster, and which of them a session spans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class RayNode:
    """A node that Ray believes to be alive."""

    node_id: str
    host: str
    resources: Mapping[str, float]

    def __str__(self) -> str:
        return f"{self.host} ({self.node_id[:8]})"


def own_node_id() -> str:
    """Ray's id of the node of this process."""
    import ray

    return str(ray.get_runtime_context().get_node_id())


def living_nodes() -> list[RayNode]:
    """All that are alive now."""
    import ray

    return [
        RayNode(node["NodeID"], str(node["NodeManagerAddress"]).strip("[]"), dict(node["Resources"]))
        for node in ray.nodes()
        if node["Alive"]
    ]


def spanned(nodes: list[RayNode], resource: str | None, creator: str) -> list[RayNode]:
    """Those that belong to a session: its creator's, and all that have the resource, where one is asked for."""
    return [
        node for node in nodes if resource is None or node.resources.get(resource, 0) > 0 or node.node_id == creator
    ]
