"""How much faster we are than the best peer, where a claim says so: a value that only all results together have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.goals import SYSTEM, value_of

FACT = "faster_than_peers"


def add_comparisons(results: Sequence[dict[str, Any]], prefix: str = "two_nodes_") -> None:
    """Gives our results of such claims the fact `FACT`: the time of the best peer's get over ours. None where no peer
    was measured."""
    for ours in results:
        if ours["system"] != SYSTEM or not ours["claim"].startswith(prefix):
            continue
        peers = [
            seconds
            for item in results
            if item["claim"] == ours["claim"] and item["system"] != SYSTEM
            if (seconds := value_of(item, "get_ms")) is not None
        ]
        mine = value_of(ours, "get_ms")
        if peers and mine:
            ours["facts"][FACT] = min(peers) / mine
