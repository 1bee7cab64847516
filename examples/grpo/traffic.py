"""What a rank's bridged calls moved through shared memory, counted from the bridge's own log lines."""

from __future__ import annotations

import logging
import re

from examples.common.weight_sync import PARTITION as WEIGHTS_PARTITION

_BRIDGE_LOGGER = "transferqueue.bridge"
_COUNTS = re.compile(r"partition=(\S+) .*viewed=(\d+)B copied=(\d+)B")
_TOTALS = ("viewed", "copied", "weights_viewed", "weights_copied")


class TrafficLog(logging.Handler):
    """Adds up the bytes that each call of this process viewed in shared memory or copied out of it, weights apart."""

    def __init__(self) -> None:
        super().__init__(level=logging.INFO)
        self._totals = dict.fromkeys(_TOTALS, 0)
        logger = logging.getLogger(_BRIDGE_LOGGER)
        logger.setLevel(logging.INFO)
        logger.propagate = False  # counted, not printed: one line a rank and call would bury the progress
        logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        found = _COUNTS.search(record.getMessage())
        if found is None:
            return
        prefix = "weights_" if found.group(1) == WEIGHTS_PARTITION else ""
        self._totals[f"{prefix}viewed"] += int(found.group(2))
        self._totals[f"{prefix}copied"] += int(found.group(3))

    def take(self) -> dict[str, int]:
        """The totals since the last call."""
        totals, self._totals = self._totals, dict.fromkeys(_TOTALS, 0)
        return totals
