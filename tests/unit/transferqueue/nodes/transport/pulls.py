"""What tests of pulls share, whichever transport makes them: deadlines, room, and the right bytes."""

from __future__ import annotations

import time

import numpy as np

from tests.unit.transferqueue.nodes.transport.transports import Room, expected
from transferqueue._native import Store
from transferqueue.nodes.transport.protocol import FieldDescription, PayloadDescription, PayloadRequest


def soon(seconds: float) -> float:
    """A deadline."""
    return time.monotonic() + seconds


def room_for(store: Store, what: PayloadRequest) -> Room:
    """For rows of one size each field, without asking a transport for it."""
    sizes = {name: np.full(len(what.rows), len(data) // len(what.rows)) for name, data in expected(store, what).items()}
    none = np.zeros(0, np.int64)
    return Room(PayloadDescription({name: FieldDescription((), none, size) for name, size in sizes.items()}))


def check(room: Room, store: Store, what: PayloadRequest) -> None:
    """The room has what the store has."""
    for name, data in expected(store, what).items():
        assert np.array_equal(room.fields[name], data)
