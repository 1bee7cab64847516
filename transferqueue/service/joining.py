"""Free room in pieces, joined for a put that none of them holds.

Two ways. A *window* is emptied: what lives in it moves into other pieces, each at least as large as what moves there.
Where there are none, the blocks of a *run* slide: each to the end of the one before it, so that all that is free of the
run comes to lie behind the last. A block larger than the gap before it goes aside first, into any piece or the
headroom; with each the gap grows.

Whatever others do meanwhile, each move is a reservation and a publication like any: at worst nothing is joined.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from transferqueue.service.moving import Mover, NoRoomError, Room
from transferqueue.service.sparse_plan import Batch, SparsePlan

if TYPE_CHECKING:
    from transferqueue._native import Reservation, Store

# Bytes that may slide for each that is wanted: as much as emptying sparse blocks costs at worst.
_MOST_MOVED = 3


class Joining:
    """Of one store in memory. The caller holds the lock of compaction."""

    def __init__(self, store: Store, mover: Mover) -> None:
        self._store = store
        self._mover = mover

    def window(self, wanted_nbytes: int) -> bool:
        """Moves what lies in the way of one free piece of this size; at most as many bytes as it is large. False:
        there is no such window."""
        window = self._store.cheapest_window(wanted_nbytes)
        if window is None:
            return False
        held: list[Reservation] = []
        try:
            held += self._store.reserve_within(*window)
            after = 0
            while True:
                plan = SparsePlan(self._store, after, window)
                for block in plan.largest_first():
                    for batch in plan.batches(block):
                        self._mover.move(batch, whole=True)
                    # At once, or the next block would move into it.
                    held += self._store.reserve_within(*window)
                after = plan.next
                if not after:
                    return True
        finally:
            for reservation in held:
                reservation.abandon()

    def slide(self, wanted_nbytes: int) -> bool:
        """Moves the blocks of a run together; at most `_MOST_MOVED` times as many bytes as are wanted, twice where they
        go aside. False: nothing moved."""
        run = self._store.cheapest_run(wanted_nbytes, _MOST_MOVED * wanted_nbytes)
        if run is None:
            return False
        end, moved = run[0], False
        with contextlib.suppress(NoRoomError):  # somebody took what was free, or reads what moved
            for offset, nbytes, batches in self._blocks(run):
                if offset <= end:
                    end = offset + nbytes
                    continue
                if offset - end < nbytes:
                    for batch in batches:
                        self._mover.move_aside(batch)
                        moved = True
                for batch in batches:
                    _, placed = self._mover.copy(batch, self._room_from(end))
                    if placed is not None:
                        end, moved = placed.offset + placed.nbytes, True
        return moved

    def _blocks(self, run: tuple[int, int]) -> list[tuple[int, int, list[Batch]]]:
        """(offset, bytes, what lives) of each that reaches into the run, in the order in which they lie."""
        found, after = [], 0
        while True:
            plan = SparsePlan(self._store, after, run)
            found += [
                (offset, nbytes, plan.batches([at]))
                for at, (offset, nbytes) in enumerate(zip(plan.offsets.tolist(), plan.nbytes.tolist(), strict=True))
            ]
            after = plan.next
            if not after:
                return sorted(found, key=lambda block: block[0])

    def _room_from(self, begin: int) -> Room:
        """See `Store.reserve_from`."""

        def room(nbytes: int, _: int) -> Reservation | None:
            found = self._store.reserve_from(begin, nbytes)
            if found is None and self._store.reclaim():  # what lay there was left a moment ago
                found = self._store.reserve_from(begin, nbytes)
            return found

        return room
