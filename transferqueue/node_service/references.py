"""Which payload the partitions of one home name: its own blocks, and other nodes' names."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from transferqueue.client.core import as_indexes
from transferqueue.nodes.names import Names, is_hidden, is_standby
from transferqueue.nodes.naming import stub_place
from transferqueue.waiting import version_of

if TYPE_CHECKING:
    from transferqueue._native import Resolved, Store

_ROWS_AT_ONCE = 8192
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
        return {name: seen for name, seen in self._everything().items() if not is_hidden(name)}

    def _everything(self) -> dict[str, PartitionNames]:
        names = [name for name in self._store.partitions() if not is_hidden(name) or is_standby(name)]
        with self._guard:
            gone = [name for name in self._seen if name not in names]
            for name in gone:
                del self._seen[name]
        return {name: self.of(name) for name in names}

    def named(self, names: Names) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """bool [names]: which any partition names now, those that are followed for another home included."""
        found = np.zeros(len(names), dtype=np.bool_)
        for seen in self._everything().values():
            if len(seen.names):
                found |= np.isin(names, seen.names)
        return found

    def _version(self, partition: str) -> int:
        return version_of(self._store, partition)

    def _look(self, partition: str, version: int) -> PartitionNames:
        found, indexes, _, _ = self._store.production(partition, [])
        if not found or not len(indexes):
            return PartitionNames(version)
        names: list[Names] = []
        blocks: set[int] = set()
        # Some at a time, since their blocks are leased: stubs are read. A name belongs to its row and does not move to
        # another, so none is missed between two looks that was there all the time.
        for start in range(0, len(indexes), _ROWS_AT_ONCE):
            some = as_indexes(indexes[start : start + _ROWS_AT_ONCE])
            resolved = self._store.resolve(partition, indexes=some, fields=None)
            try:
                _named_by(resolved, names, blocks)
            finally:
                resolved.release()
        return PartitionNames(version, np.unique(np.concatenate(names)) if names else _NONE, frozenset(blocks))


def _named_by(resolved: Resolved, names: list[Names], blocks: set[int]) -> None:
    """Adds what the rows name."""
    seen: set[tuple[int, tuple[int, ...]]] = set()
    for number in range(len(resolved.fields)):
        pieces = resolved.pieces(number)
        listed = pieces[:, 2].tolist()
        # Where the names of the field lie in each block, -1 for payload. Fields that were put together have them at one
        # place; those that were only brought together by a move do not.
        places = {block: stub_place(resolved, number, block) for block in dict.fromkeys(listed)}
        key = (resolved.piece_list_id(number), tuple(places.values()))
        if key in seen:
            continue
        seen.add(key)
        blocks.update(resolved.block_id(block) for block, place in places.items() if place < 0)
        held = pieces[[places[block] >= 0 for block in listed]]
        if len(held):
            found = np.empty(int(held[:, 1].sum()), dtype=np.int64)
            resolved.copy_rows(number, np.ascontiguousarray(held), found.ctypes.data, found.nbytes)
            names.append(found)
