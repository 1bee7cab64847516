"""Keeps free memory warm for what comes from other nodes: to touch a page for the first time costs about ten times what
copying into it does."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transferqueue._native import Store

# A sign of life waits for a step: about 0.1 s.
_STEP_NBYTES = 32 << 20
_MOST_OF_STORE = 4


class WarmRoom:
    """Of one node.

    Args:
        store: of the node.
        nbytes: free and touched is to be so much, of small stores a quarter.
    """

    def __init__(self, store: Store, nbytes: int) -> None:
        self._store = store
        self._nbytes = nbytes
        self._full = False

    def tick(self) -> int:
        """One step: bytes that were touched. Called now and then."""
        if self._full or not self._nbytes:
            return 0
        figures = self._store.stats()
        wanted = min(self._nbytes, figures["total_bytes"] // _MOST_OF_STORE)
        missing = wanted - figures["warm_bytes"]
        if missing <= 0:
            return 0
        done = self._store.populate(min(missing, _STEP_NBYTES))
        self._full = not done  # all is touched that can be
        return done
