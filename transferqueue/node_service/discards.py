"""Payload that goes, or waits for the end of a checkpoint before it does."""

from __future__ import annotations

import threading

from transferqueue.nodes.names import Names
from transferqueue.nodes.payload import PayloadStore


class Discards:
    """Of one agent. Thread-safe.

    Args:
        payload: of the node.
    """

    def __init__(self, payload: PayloadStore) -> None:
        self._payload = payload
        self._guard = threading.Lock()
        self._holds = 0
        self._waiting: list[Names] = []

    @property
    def held(self) -> bool:
        """Whether payload has to stay."""
        return self._holds > 0

    def hold(self) -> None:
        """No payload that this node gave out goes before as many `end_hold`: a save has yet to write what was named
        a moment ago, a load is about to have it named."""
        with self._guard:
            self._holds += 1

    def end_hold(self) -> None:
        """What should have gone meanwhile goes now."""
        waiting: list[Names] = []
        with self._guard:
            self._holds -= 1
            if not self._holds:
                waiting, self._waiting = self._waiting, []
        for names in waiting:
            self._payload.discard(names)

    def discard(self, names: Names) -> None:
        """Frees payload that nobody names, at once or at the end of a hold."""
        with self._guard:
            if self._holds:
                self._waiting.append(names)
                return
        self._payload.discard(names)
