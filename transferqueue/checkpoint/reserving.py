"""Room for all blocks of a session that is to be loaded."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from transferqueue import _native
from transferqueue.errors import StorageFullError
from transferqueue.service.room_search import RoomSearch

# Smaller blocks share extents that the store cuts up: where they fit at all, they are taken together.
_SINGLY_FROM_NBYTES = 64 << 10


@contextmanager
def reserved(store: _native.Store, session: _native.SavedSession) -> Iterator[list[_native.Reservation]]:
    """One reservation a block; all given back when the body raises.

    Raises:
        StorageFullError: no room for all of them, compacted and spilled as for a put; nothing was changed.
    """
    reservations = _reserve(store, np.ascontiguousarray(session.blocks[:, 2]))
    try:
        yield reservations
    except BaseException:
        give_back(reservations)
        raise


def _reserve(store: _native.Store, sizes: npt.NDArray[np.int64]) -> list[_native.Reservation]:
    try:
        return store.reserve_all(sizes)
    except StorageFullError as error:
        if error.resource != "payload" or not _may_fit(store, error):
            raise
    # One after the other, the largest first, each as a put that finds no room.
    order = np.argsort(-sizes, kind="stable")
    large = order[sizes[order] >= _SINGLY_FROM_NBYTES]
    small = order[len(large) :]
    found: dict[int, _native.Reservation] = {}
    try:
        for at in large.tolist():
            found[at] = _reserve_one(store, int(sizes[at]))
        try:
            found |= zip(small.tolist(), store.reserve_all(sizes[small]), strict=True)
        except StorageFullError:
            for at in small.tolist():
                found[at] = _reserve_one(store, int(sizes[at]))
    except StorageFullError:
        give_back(list(found.values()))
        found.clear()
        return store.reserve_all(sizes)  # it says how much all of it would need
    except BaseException:
        give_back(list(found.values()))
        raise
    return [found[at] for at in range(len(sizes))]


def _reserve_one(store: _native.Store, nbytes: int) -> _native.Reservation:
    try:
        return store.reserve_all(np.array([nbytes], np.int64))[0]  # in the spill file, where memory has no room
    except StorageFullError as error:
        if error.resource != "payload":
            raise
    return RoomSearch(store, nbytes).reserve(ahead=False)


def _may_fit(store: _native.Store, error: StorageFullError) -> bool:
    """Whether there is room for all of it if every block held only what lives, in memory or on disk: else moving what
    is there would be in vain."""
    figures = store.stats()
    most = figures["total_bytes"] + figures["spill_total_bytes"] - figures["live_bytes"]
    return error.wanted_bytes is not None and error.wanted_bytes <= most


def give_back(reservations: list[_native.Reservation]) -> None:
    """Those that were not published."""
    for reservation in reservations:
        # What was published stays: an interrupt may come right after the commit, and is what the caller must see.
        with contextlib.suppress(ValueError):
            reservation.abandon()
