"""What a rank's bridged calls moved through shared memory, counted from the bridge's own log lines."""

from __future__ import annotations

import logging
import re
from typing import Any

from tensordict import TensorDict

_BRIDGE_LOGGER = "transferqueue.bridge"
_COUNTS = re.compile(r"partition=(\S+) .*viewed=(\d+)B copied=(\d+)B")


class TrafficLog(logging.Handler):
    """Adds up the bytes that each call of this process viewed in shared memory or copied out of it.

    Partitions named in `apart` are left out: the weights are no part of a batch.
    """

    def __init__(self, apart: frozenset[str] = frozenset({"weights"})) -> None:
        super().__init__(level=logging.INFO)
        self._apart = apart
        self._totals = dict.fromkeys(("viewed", "copied", "calls"), 0)
        logger = logging.getLogger(_BRIDGE_LOGGER)
        logger.setLevel(logging.INFO)
        logger.propagate = False  # counted, not printed: one line a rank and call would bury the progress
        logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        found = _COUNTS.search(record.getMessage())
        if found is None or found.group(1) in self._apart:
            return
        self._totals["viewed"] += int(found.group(2))
        self._totals["copied"] += int(found.group(3))
        self._totals["calls"] += 1

    def take(self) -> dict[str, int]:
        """The totals since the last call."""
        totals, self._totals = self._totals, dict.fromkeys(self._totals, 0)
        return totals


def strings_of(batch: TensorDict, name: str) -> list[str]:
    """A column of strings as a list with one entry per row."""
    column: Any = batch.get(name)
    values = column.tolist() if hasattr(column, "tolist") else [column] * batch.batch_size[0]
    return [str(value) for value in values]
