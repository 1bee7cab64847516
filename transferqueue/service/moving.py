"""One batch of cells, copied into a new block and published there by compare-and-set."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from transferqueue.errors import StorageFullError
from transferqueue.service.rewriting import Rewriting
from transferqueue.service.sparse_plan import Batch

if TYPE_CHECKING:
    from transferqueue._native import Reservation, Resolved, Store

# Of one step: a millisecond or two of copying.
STEP_NBYTES = 16 << 20
# Room for so many bytes of so many rows, or None.
Room = Callable[[int, int], "Reservation | None"]


class NoRoomError(Exception):
    """For what is left of the batch."""

    def __init__(self, batch: Batch) -> None:
        super().__init__(batch)
        self.batch = batch


class Mover:
    """Of one store.

    Args:
        spilled: moves what lies in the spill file, within it.
    """

    def __init__(self, store: Store, *, spilled: bool = False) -> None:
        self._store = store
        self._spilled = spilled

    def move(self, batch: Batch, *, headroom: bool = True, whole: bool = False) -> bool:
        """Copies and publishes what is left of the batch; in halves where it is too much for a step or for any room.
        False when not even one row found any.

        Args:
            headroom: where there is no other room, by way of the headroom.
            whole: a block that lives stays one, whatever its size; never by way of the headroom.
        """
        borrowed = False

        def room(nbytes: int, rows: int) -> Reservation | None:
            nonlocal borrowed
            if not whole and nbytes > STEP_NBYTES and rows > 1:
                return None
            found = self.anywhere(nbytes)
            if found is None and headroom and not whole:
                found, borrowed = self._in_headroom(nbytes), True
            return found

        try:
            batch, _ = self.copy(batch, room)
        except NoRoomError as error:
            batch = error.batch
            middle = len(batch.rows) // 2
            halves = [batch.rows[:middle], batch.rows[middle:]] if middle else []
            return bool(halves) and all(
                self.move(Batch(batch.partition, batch.fields, rows), headroom=headroom, whole=whole) for rows in halves
            )
        if borrowed:
            # What it left is free by now; another put may be faster, and then it stays until the next look.
            self._store.reclaim()
            self.move(batch, headroom=False)
        return True

    def move_aside(self, batch: Batch) -> None:
        """Copies and publishes what is left of the batch anywhere, in the headroom if need be. Raises NoRoomError."""
        self.copy(batch, lambda nbytes, _: self.anywhere(nbytes) or self._in_headroom(nbytes))

    def copy(self, batch: Batch, room: Room) -> tuple[Batch, Reservation | None]:
        """Copies and publishes what is left of the batch: that, and where it is now; None where nothing is left.

        Raises:
            NoRoomError: `room` gave none.
        """
        resolved, batch = self._complete(batch)
        if resolved is None:
            return batch, None
        try:
            rewriting = Rewriting(resolved, batch.fields, whole=True)
            if not rewriting.nbytes:
                return batch, None
            reservation = room(rewriting.nbytes, len(batch.rows))
            if reservation is None:
                raise NoRoomError(batch)
            try:
                rewriting.write(self._store, reservation, compaction=True)
            except BaseException:
                with contextlib.suppress(ValueError):  # the error came behind the publication
                    reservation.abandon()
                raise
            return batch, reservation
        finally:
            resolved.release()

    def anywhere(self, nbytes: int) -> Reservation | None:
        """Room where puts find it; no waiting."""
        if self._spilled:
            return _room(self._store.reserve_spilled, nbytes)
        return _room(self._store.reserve, nbytes, 0.0)

    def _in_headroom(self, nbytes: int) -> Reservation | None:
        return _room(self._store.reserve_headroom, nbytes)

    def _complete(self, batch: Batch) -> tuple[Resolved | None, Batch]:
        """Leased; of the rows those that have all the fields: the others were cleared since the look."""
        while len(batch.rows):
            resolved = self._store.resolve(batch.partition, indexes=batch.rows, fields=batch.fields)
            if resolved.complete:
                return resolved, batch
            keep = _complete_rows(resolved, batch)
            resolved.release()
            batch = Batch(batch.partition, batch.fields, batch.rows[keep])
        return None, batch


def _room(reserve: Callable[..., Reservation], *arguments: float) -> Reservation | None:
    try:
        return reserve(*arguments)
    except StorageFullError as error:
        if error.resource != "payload":
            raise
        return None


def _complete_rows(resolved: Resolved, batch: Batch) -> npt.NDArray[np.bool_]:
    fields_of = np.zeros(len(batch.rows) + 1, dtype=np.int64)
    for field in range(len(batch.fields)):
        pieces = resolved.pieces(field)
        np.add.at(fields_of, pieces[:, 0], 1)
        np.subtract.at(fields_of, pieces[:, 0] + pieces[:, 1], 1)
    complete: npt.NDArray[np.bool_] = np.cumsum(fields_of)[:-1] == len(batch.fields)
    return complete
