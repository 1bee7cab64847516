"""How many ranks on which nodes."""

from __future__ import annotations

from collections.abc import Sequence


class ResourcePool:
    """The shape of a pool: ``process_on_nodes[i]`` ranks on the i-th node. Nodes may have different counts.

    Args:
        process_on_nodes: ranks per node, each at least 1.
        max_colocate_count: how many worker groups may share the pool.
        n_gpus_per_node: kept for programs that read it; nothing here depends on it.
    """

    def __init__(
        self,
        process_on_nodes: Sequence[int] | None = None,
        max_colocate_count: int = 10,
        n_gpus_per_node: int = 8,
    ) -> None:
        if process_on_nodes is not None and (
            not isinstance(process_on_nodes, Sequence) or isinstance(process_on_nodes, str)
        ):
            raise TypeError(f"process_on_nodes lists the ranks of each node, such as [2]; got {process_on_nodes!r}")
        if isinstance(max_colocate_count, bool) or not isinstance(max_colocate_count, int) or max_colocate_count < 1:
            raise ValueError(f"max_colocate_count must be an int of at least 1, got {max_colocate_count!r}")
        self._store = [_checked_count(count) for count in process_on_nodes or ()]
        self.max_colocate_count = max_colocate_count
        self.n_gpus_per_node = n_gpus_per_node

    def add_node(self, process_count: int) -> None:
        """One more node with so many ranks. Only before a group uses the pool."""
        self._store.append(_checked_count(process_count))

    @property
    def store(self) -> list[int]:
        """Ranks per node, in rank order."""
        return list(self._store)

    @property
    def world_size(self) -> int:
        """Ranks in all."""
        return sum(self.store)

    def __call__(self) -> list[int]:
        return self.store

    def local_world_size_list(self) -> list[int]:
        """For each rank, how many ranks its node entry has."""
        return [count for count in self.store for _ in range(count)]

    def local_rank_list(self) -> list[int]:
        """For each rank, its number within its node entry."""
        return [number for count in self.store for number in range(count)]


def _checked_count(count: int) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ValueError(f"process_on_nodes must be positive ints, one per node, got {count!r}")
    return count
