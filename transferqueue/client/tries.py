"""Looks at rows whose payload is not where it was said to be: how often, and until when."""

from __future__ import annotations

import time

from transferqueue.errors import DataLostError, TransferTimeoutError, name_some
from transferqueue.nodes.errors import GoneError

# Of rows that are located where they are not: so often the home is asked anew before they are given up for lost.
_LOST_AFTER = 4
_LOST_AFTER_S = 2.0
_PAUSE_S = 0.02


class Tries:
    """Looks at one partition that found rows and not their payload."""

    def __init__(self, partition: str, until_s: float) -> None:
        self._partition = partition
        self._began_s = time.monotonic()
        self._last: tuple[int, ...] = ()
        self._same = 0
        self.until_s = until_s

    def again(self, error: GoneError) -> float:
        """Seconds to pause before the next look.

        Raises:
            DataLostError: the same rows are gone at every look. TransferTimeoutError: the deadline has passed.
        """
        now_s = time.monotonic()
        self._same = self._same + 1 if error.rows == self._last else 1
        self._last = error.rows
        if error.rows and self._same >= _LOST_AFTER and now_s - self._began_s >= _LOST_AFTER_S:
            raise DataLostError(
                f"partition {self._partition!r}: the index names payload that its node does not have: global indexes "
                f"{name_some(error.rows)}. {error.message}",
                rows=error.rows,
                partition_id=self._partition,
            ) from error
        if now_s >= self.until_s:
            raise TransferTimeoutError(
                f"rows of partition {self._partition!r} changed faster than they could be read: {error.message}",
                timeout_s=now_s - self._began_s,
                missing=error.rows,
            ) from error
        return _PAUSE_S * min(self._same, 10)
