"""A Ray that is a table of nodes, for what asks only what is there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from transferqueue.controller.pools import bundle, cluster_nodes


def use_cluster(monkeypatch: pytest.MonkeyPatch, *nodes: dict[str, float]) -> None:
    """Nodes 10.0.0.0, 10.0.0.1, ... with these resources, and one that is dead."""
    table = [
        {"Alive": True, "NodeID": f"node{i}", "NodeManagerAddress": f"10.0.0.{i}", "Resources": resources}
        for i, resources in enumerate(nodes)
    ]
    table.append({"Alive": False, "NodeID": "gone", "NodeManagerAddress": "10.0.0.99", "Resources": {"CPU": 1000.0}})
    total: dict[str, float] = {}
    for node in nodes:
        for name, amount in node.items():
            total[name] = total.get(name, 0.0) + amount
    fake: Any = SimpleNamespace(
        nodes=lambda: table, cluster_resources=lambda: total, is_initialized=lambda: True, _private=None
    )
    for module in (cluster_nodes, bundle):
        monkeypatch.setattr(module, "require_ray", lambda what: fake)
