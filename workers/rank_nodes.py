"""Which rank of a group runs on which node."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class RankNode:
    """The node of a rank: its address, and its id in the cluster."""

    node_ip: str
    node_id: str


class RankNodes(Mapping[int, RankNode]):
    """Rank -> `RankNode`, for every rank of a group in rank order. Empty outside a group.

    Travels in one environment variable, hence `to_text`: a node is written once with the ranges of its ranks, so that
    1024 ranks on 128 nodes take about 12 kB.
    """

    def __init__(self, nodes: Sequence[RankNode] = ()) -> None:
        self._nodes = tuple(nodes)

    def __getitem__(self, rank: int) -> RankNode:
        if not 0 <= rank < len(self._nodes):
            raise KeyError(f"no rank {rank}: the group has {len(self._nodes)} ranks")
        return self._nodes[rank]

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self._nodes)))

    def __len__(self) -> int:
        return len(self._nodes)

    def __eq__(self, other: object) -> bool:
        return self._nodes == other._nodes if isinstance(other, RankNodes) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._nodes)

    def __repr__(self) -> str:
        return f"RankNodes({ {rank: node.node_ip for rank, node in self.items()} })"

    def ranks_on(self, node_id: str) -> list[int]:
        """The ranks on that node, ascending."""
        return [rank for rank, node in self.items() if node.node_id == node_id]

    def to_text(self) -> str:
        """For `from_text`; "" when empty."""
        if not self._nodes:
            return ""
        runs: dict[RankNode, list[list[int]]] = {}
        for rank, node in self.items():
            mine = runs.setdefault(node, [])
            if mine and mine[-1][1] == rank - 1:
                mine[-1][1] = rank
            else:
                mine.append([rank, rank])
        rows = [[node.node_ip, node.node_id, ranges] for node, ranges in runs.items()]
        return json.dumps(rows, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> RankNodes:
        """Reads `to_text`. `ValueError` for other text."""
        if not text:
            return cls()
        nodes: dict[int, RankNode] = {}
        try:
            for node_ip, node_id, ranges in json.loads(text):
                node = RankNode(str(node_ip), str(node_id))
                for first, last in ranges:
                    nodes.update(dict.fromkeys(range(int(first), int(last) + 1), node))
            return cls([nodes[rank] for rank in range(len(nodes))])
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"not a table of ranks and nodes: {text[:200]!r}") from error
