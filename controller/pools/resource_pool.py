"""How many ranks on which nodes."""

from __future__ import annotations

from collections.abc import Sequence


class ResourcePool:
    """The shape of a pool: ``process_on_nodes[i]`` ranks on the i-th node. Nodes may have different counts.

    Args:
        process_on_nodes: ranks per node, each at least 1.
        max_colocate_count: how many worker groups may share the pool.
    """

    def __init__(self, process_on_nodes: Sequence[int] | None = None, max_colocate_count: int = 10) -> None:
        if process_on_nodes is not None and not isinstance(process_on_nodes, Sequence):
            raise TypeError(f"process_on_nodes lists the ranks of each node, such as [2]; got {process_on_nodes!r}")
        counts = list(process_on_nodes or [])
        if any(isinstance(count, bool) or not isinstance(count, int) or count < 1 for count in counts):
            raise ValueError(f"process_on_nodes must be positive ints, one per node, got {counts}")
        if max_colocate_count < 1:
            raise ValueError(f"max_colocate_count must be at least 1, got {max_colocate_count}")
        self._store = counts
        self.max_colocate_count = max_colocate_count

    def add_node(self, process_count: int) -> None:
        """One more node. Only before a group uses the pool."""
        self._store.append(process_count)

    @property
    def store(self) -> list[int]:
        """Ranks per node."""
        return list(self._store)

    @property
    def world_size(self) -> int:
        return sum(self._store)

    def __call__(self) -> list[int]:
        return self.store

    def local_world_size_list(self) -> list[int]:
        """For each rank, how many ranks its node entry has."""
        return [count for count in self._store for _ in range(count)]

    def local_rank_list(self) -> list[int]:
        """For each rank, its number within its node entry."""
        return [number for count in self._store for number in range(count)]
