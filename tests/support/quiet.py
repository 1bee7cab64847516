"""Sessions whose housekeeping runs only when a test says so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import transferqueue as tq
from transferqueue.storage.session_lock import SessionLock


@contextmanager
def without_service(session: tq.Session) -> Iterator[None]:
    """Nobody runs the session's service, here or elsewhere, inside the block: a point that a test arms is passed by the
    calls it makes and by nothing else, and no other process takes the service over."""
    session.service.stop()
    lock = SessionLock(session.attachment.paths.service_lock, create=True)
    assert lock.try_exclusive()
    try:
        yield
    finally:
        lock.close()
