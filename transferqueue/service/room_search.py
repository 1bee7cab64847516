"""What a put does that finds no room, before it waits: others' leftovers, copies of what other nodes have, sparse
blocks, cold blocks."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from transferqueue.errors import StorageFullError
from transferqueue.service.compactor import Compactor

if TYPE_CHECKING:
    from transferqueue._native import Reservation, Store

# A look at all sparse blocks is not repeated at every try of a put that waits.
_COMPACT_AGAIN_S = 0.2
_LONGEST_S = 3.2


class RoomSearch:
    """Of one put of `nbytes`, which tries again and again until there is room or its time is over."""

    def __init__(
        self,
        store: Store,
        nbytes: int,
        lock_timeout_s: Callable[[], float | None] = lambda: None,
        evict: Callable[[int], int] | None = None,
    ) -> None:
        """`lock_timeout_s`: asked before each try, see `Store.reserve`. `evict`: clears what can be had again, about so
        many bytes; returns how many."""
        self._store = store
        self._evict = evict
        self._lock_timeout_s = lock_timeout_s
        self._nbytes = nbytes
        self._next_s = 0.0
        self._next_disk_s = 0.0
        self._pause_s = _COMPACT_AGAIN_S

    def reserve(self, ahead: bool) -> Reservation:
        """One try: room as it is (reclaimed and grown by the store itself), evicted, compacted, spilled.

        Raises:
            StorageFullError: nothing helped now.
        """
        try:
            return self._try(ahead)
        except StorageFullError as error:
            full = error
        if full.resource != "payload":
            raise full
        # Room in pieces too small is no reason to keep copies: they are in between.
        wanted = self._nbytes
        while self._evict is not None and self._evict(wanted) > 0:
            try:
                return self._try(ahead)
            except StorageFullError as error:
                full = error
            wanted *= 2
        if time.monotonic() >= self._next_s:
            for _ in Compactor(self._store).rounds(self._nbytes):
                try:
                    return self._try(ahead)
                except StorageFullError as error:
                    full = error
            self._next_s = time.monotonic() + self._pause_s
            self._pause_s = min(2 * self._pause_s, _LONGEST_S)
        while self._spilled():
            try:
                return self._try(ahead)
            except StorageFullError as error:
                full = error
        if time.monotonic() < self._next_disk_s or not self._disk_is_sparse():
            raise full
        for _ in Compactor(self._store, spilled=True).rounds(self._nbytes):
            while self._spilled():
                try:
                    return self._try(ahead)
                except StorageFullError as error:
                    full = error
        self._next_disk_s = time.monotonic() + self._pause_s
        raise full

    def _try(self, ahead: bool) -> Reservation:
        return self._store.reserve(self._nbytes, 0.0, ahead, lock_timeout_s=self._lock_timeout_s())

    def _disk_is_sparse(self) -> bool:
        """Whether there is a spill file, whose blocks hold what no row names."""
        figures = self._store.stats()
        return figures["spilled_bytes"] > figures["spilled_live_bytes"]

    def _spilled(self) -> bool:
        """Whether blocks that moved to disk left anything; in one piece where there is enough in pieces."""
        figures = self._store.stats()
        if not figures["spill_total_bytes"]:
            return False
        return self._store.spill(self._nbytes, contiguous=figures["free_bytes"] >= self._nbytes) > 0
