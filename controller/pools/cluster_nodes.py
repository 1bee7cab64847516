"""What the nodes of the cluster have, and what of it is free."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass

from transferqueue.workers.ray_runtime import require_ray


@dataclass(frozen=True)
class ClusterNode:
    """A node that is alive: its resources in all, and those that nobody holds."""

    node_id: str
    node_ip: str
    present: Mapping[str, float]
    free: Mapping[str, float]

    def amounts(self, names: Mapping[str, float]) -> str:
        """For messages: ``10.0.0.1: CPU 8 (free 2), GPU 4``."""
        return f"{self.node_ip}: {amounts(self.present, names, self.free)}"


def cluster_nodes() -> list[ClusterNode]:
    """The nodes that are alive, by address."""
    ray = require_ray("RayResourcePool")
    alive = [node for node in ray.nodes() if node["Alive"]]
    free = _free_by_node(ray)
    nodes = [
        ClusterNode(node["NodeID"], node["NodeManagerAddress"], node["Resources"], free.get(node["NodeID"], {}))
        for node in alive
    ]
    return sorted(nodes, key=lambda node: address_order(node.node_ip))


def amounts(resources: Mapping[str, float], names: Mapping[str, float], free: Mapping[str, float] | None = None) -> str:
    """Those of `names` as text, with what is free of them where that is less."""
    shown = []
    for name in names:
        amount = resources.get(name, 0.0)
        left = amount if free is None else free.get(name, 0.0)
        shown.append(f"{name} {amount:g}" + (f" (free {left:g})" if left < amount else ""))
    return ", ".join(shown)


def address_order(address: str) -> tuple[int, int, str]:
    """Sorts addresses as numbers: 10.0.0.9 before 10.0.0.10, host names last."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:  # a host name
        return (9, 0, address)
    return (parsed.version, int(parsed), "")


def _free_by_node(ray: object) -> Mapping[str, Mapping[str, float]]:
    # Ray has no public name for it; without it a message says less.
    state = getattr(getattr(ray, "_private", None), "state", None)
    by_node = getattr(state, "available_resources_per_node", None)
    return by_node() if by_node is not None else {}
