"""The comparison with the best peer, from made-up results."""

from __future__ import annotations

from typing import Any

from bench.against_peers import FACT, add_comparisons
from bench.goals import SYSTEM


def result(claim: str, system: str, get_ms: float) -> dict[str, Any]:
    return {"claim": claim, "system": system, "summary": {"get_ms": get_ms}, "facts": {}}


def test_the_best_peer_counts() -> None:
    ours, alone, other = (
        result("two_nodes_1", SYSTEM, 20.0),
        result("two_nodes_2", SYSTEM, 20.0),
        result("put_get_w", SYSTEM, 1.0),
    )
    peers = [result("two_nodes_1", "a", 90.0), result("two_nodes_1", "b", 50.0), result("put_get_w", "a", 9.0)]
    add_comparisons([ours, alone, other, *peers])
    assert ours["facts"] == {FACT: 2.5}
    assert alone["facts"] == other["facts"] == {}
