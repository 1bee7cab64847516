"""What this process has joined."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transferqueue.session import Session


class ProcessState:
    """One object, so that a fork can reset it as a whole."""

    def __init__(self) -> None:
        self.guard = threading.RLock()
        self.session: Session | None = None
        self.closed_name: str | None = None

    def live_session(self) -> Session | None:
        """The session, unless it was closed here or has ended."""
        session = self.session
        if session is None or session.closed or session.attachment.store.ended:
            return None
        return session
