"""A run of bundles of a reservation: what a pool is made of."""

from __future__ import annotations

from dataclasses import dataclass

from transferqueue.controller.pools.reservation import Reservation


@dataclass(frozen=True)
class PoolSlice:
    """The bundles ``[start, stop)`` of a reservation, counted in its rank order; `stop` None: all from `start`."""

    reservation: Reservation
    start: int = 0
    stop: int | None = None

    def numbers(self) -> range:
        """The bundles, as the reservation numbers them."""
        stop = sum(self.reservation.counts()) if self.stop is None else self.stop
        return range(self.start, stop)

    def is_whole(self) -> bool:
        """Whether the slice is all of its reservation."""
        return len(self.numbers()) == sum(self.reservation.counts())

    def counts(self) -> list[int]:
        """How many bundles of each placement group, those with none left out; in rank order."""
        counts, first = [], 0
        mine = self.numbers()
        for count in self.reservation.counts():
            inside = min(first + count, mine.stop) - max(first, mine.start)
            first += count
            if inside > 0:
                counts.append(inside)
        return counts

    def cut(self, start: int, stop: int) -> PoolSlice:
        """The bundles ``[start, stop)`` of this slice."""
        first = self.start
        return PoolSlice(self.reservation, first + start, first + stop)


def cut_slices(slices: tuple[PoolSlice, ...], start: int, stop: int) -> tuple[PoolSlice, ...]:
    """The bundles ``[start, stop)`` of several slices one after the other."""
    found, first = [], 0
    for part in slices:
        length = len(part.numbers())
        low, high = max(start - first, 0), min(stop - first, length)
        if low < high:
            found.append(part.cut(low, high))
        first += length
    return tuple(found)


def overlap(slices: tuple[PoolSlice, ...]) -> bool:
    """Whether a bundle is in two of the slices."""
    taken: set[tuple[int, int]] = set()
    for part in slices:
        mine = {(id(part.reservation), number) for number in part.numbers()}
        if taken & mine:
            return True
        taken |= mine
    return False
