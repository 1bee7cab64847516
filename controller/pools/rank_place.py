"""Where the ranks of a group run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RankPlace:
    """The bundle that a rank runs in, and its node."""

    placement_group: Any
    bundle_index: int
    node_id: str
    node_ip: str

    @property
    def node(self) -> str:
        """For messages: address and the start of the node id."""
        return f"{self.node_ip} ({self.node_id[:12]})"


def local_ranks(places: Sequence[RankPlace]) -> list[tuple[int, int]]:
    """``(local rank, local world size)`` of each rank: ranks are counted per node, wherever their bundles came from."""
    on_node: dict[str, int] = {}
    numbers = []
    for place in places:
        number = on_node.get(place.node_id, 0)
        on_node[place.node_id] = number + 1
        numbers.append(number)
    return [(number, on_node[place.node_id]) for number, place in zip(numbers, places, strict=True)]
