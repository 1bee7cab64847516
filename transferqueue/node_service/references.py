"""Which payload the partitions of one home name: its own blocks, and other nodes' names."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from transferqueue.client.core import as_indexes
from transferqueue.codec.stub_schema import is_stub
from transferqueue.nodes.names import Names, is_hidden

if TYPE_CHECKING:
    from transferqueue._native import Resolved, Store

_NONE: Names = np.empty(0, dtype=np.int64)


@dataclass
class PartitionNames:
    """What one partition names.

    Attributes:
        version: of the partition when this was looked at.
        names: int64, ascending.
        blocks: ids of blocks in which rows lie as such.
    """

    version: int = -1
    names: Names = field(default_factory=lambda: _NONE)
    blocks: frozenset[int] = frozenset()


class References:
    """Looked up again only for partitions that changed. Thread-safe.

    Args:
        store: of the home.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._guard = threading.Lock()
        self._seen: dict[str, PartitionNames] = {}

    def of(self, partition: str) -> PartitionNames:
        """What it names now."""
        version = self._version(partition)
        with self._guard:
            seen = self._seen.get(partition)
        if seen is not None and seen.version == version:
            return seen
        found = self._look(partition, version)
        with self._guard:
            self._seen[partition] = found
        return found

    def all(self) -> dict[str, PartitionNames]:
        """By partition; those that are not there any more name nothing."""
        names = [name for name in self._store.partitions() if not is_hidden(name)]
        with self._guard:
            gone = [name for name in self._seen if name not in names]
            for name in gone:
                del self._seen[name]
        return {name: self.of(name) for name in names}

    def named(self, names: Names) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """bool [names]: which any partition names now."""
        found = np.zeros(len(names), dtype=np.bool_)
        for seen in self.all().values():
            if len(seen.names):
                found |= np.isin(names, seen.names)
        return found

    def _version(self, partition: str) -> int:
        from transferqueue.waiting import version_of

        return version_of(self._store, partition)

    def _look(self, partition: str, version: int) -> PartitionNames:
        found, indexes, _, _ = self._store.production(partition, [])
        if not found or not len(indexes):
            return PartitionNames(version)
        # Leased: stubs are read.
        resolved = self._store.resolve(partition, indexes=as_indexes(indexes), fields=None)
        try:
            return _named_by(resolved, version)
        finally:
            resolved.release()


def _named_by(resolved: Resolved, version: int) -> PartitionNames:
    parts: list[Names] = []
    blocks: set[int] = set()
    seen: set[int] = set()
    stub: dict[int, bool] = {}
    for number in range(len(resolved.fields)):
        shared = resolved.piece_list_id(number)
        if shared in seen:
            continue
        seen.add(shared)
        pieces = resolved.pieces(number)
        for block in set(pieces[:, 2].tolist()) - stub.keys():
            # All fields of a put are stubs, or none is.
            layout = resolved.layout(number, block)
            stub[block] = layout is not None and is_stub(layout.schema)
            if not stub[block]:
                blocks.add(resolved.block_id(block))
        held = pieces[[stub[block] for block in pieces[:, 2].tolist()]]
        if len(held):
            names = np.empty(int(held[:, 1].sum()), dtype=np.int64)
            resolved.copy_rows(number, np.ascontiguousarray(held), names.ctypes.data, names.nbytes)
            parts.append(names)
    return PartitionNames(version, np.unique(np.concatenate(parts)) if parts else _NONE, frozenset(blocks))
