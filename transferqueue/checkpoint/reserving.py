"""Room for all blocks of a session that is to be loaded."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from transferqueue import _native


@contextmanager
def reserved(store: _native.Store, session: _native.SavedSession) -> Iterator[list[_native.Reservation]]:
    """One reservation a block; all given back when the body raises.

    Raises:
        StorageFullError: no room for all of them; nothing was changed.
    """
    reservations = store.reserve_all(np.ascontiguousarray(session.blocks[:, 2]))
    try:
        yield reservations
    except BaseException:
        for reservation in reservations:
            # What the body has published stays: an interrupt may come right after the commit, and is what the caller
            # must see.
            with contextlib.suppress(ValueError):
                reservation.abandon()
        raise
