"""What a pool asks of the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from transferqueue.controller.pools.bundle import Bundle
from transferqueue.controller.pools.cluster_nodes import amounts
from transferqueue.controller.pools.feasibility import Demand


@dataclass(frozen=True)
class Plan:
    """Entry i is a placement group of `ranks_per_node[i]` bundles; with ``"STRICT_PACK"`` each lies on one node.

    `lifetime` is Ray's: ``"detached"`` for groups that outlive the program.
    """

    pool: str
    ranks_per_node: Sequence[int]
    bundle: Bundle
    strategy: str = "STRICT_PACK"
    lifetime: str | None = None

    def demands(self) -> list[Demand]:
        """The same, for `can_fit`."""
        one_node = self.strategy == "STRICT_PACK"
        resources = self.bundle.resources()
        return [Demand(self.pool, entry, n, resources, one_node) for entry, n in enumerate(self.ranks_per_node)]

    def __str__(self) -> str:
        resources = self.bundle.resources()
        return f"pool {self.pool!r} of {list(self.ranks_per_node)} bundles, each {amounts(resources, resources)}"
