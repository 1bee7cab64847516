"""Decides when rows that are gathered again and again are rewritten into one block without anybody asking.

Nobody knows how often a batch will be read. What is known is what a rewriting costs: about as much as four gathers
(measured: docs/decisions/010-scale.md). So the rows of a read are rewritten once the same read was gathered that often
by this process: whatever follows, the two together cost at most about twice what the better of "never" and "at once"
would have cost (the rent-or-buy argument of Karlin, Manasse, Rudolph and Sleator, 1988).

It counts per process and asks nobody: ranks read their own share of a batch, and each reads it several times. Two
processes that rewrite the same rows at once do no harm, the later publication finds the cells changed.
"""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from transferqueue.errors import TransferQueueError
from transferqueue.logs import get_logger
from transferqueue.service.rewriting import Rewriting

if TYPE_CHECKING:
    from transferqueue._native import Store

_log = get_logger("service")
# Below this a gather takes less than the transactions of a rewriting.
GATHERED_NBYTES = 1 << 20
_REMEMBERED = 64
_QUEUED = 16
_IDLE_S = 5.0
# What nobody asked for never takes the room that a put may want. A block whose rows moved in part stays as it is until
# the rest goes, too, so reads of ever other rows would fill the store with what no row names: moving stops where that
# is more than a share of what rows do name.
_SHARE_OF_FREE = 4
_SHARE_OF_LIVE = 4

Indexes = npt.NDArray[np.int64]
_Request = tuple[str, Indexes, tuple[str, ...]]


class Coalescer:
    """Counts gathered reads of one process and rewrites, in a thread of its own, what is read often.

    Args:
        after: so many gathers of the same rows and fields; 0: never.
    """

    def __init__(self, store: Store, after: int) -> None:
        self._store = store
        self._after = after
        self._changed = threading.Condition()
        self._gathers: OrderedDict[tuple[str, bytes, tuple[str, ...]], int] = OrderedDict()
        self._queue: deque[_Request] = deque()
        self._thread: threading.Thread | None = None
        self._stopped = False
        self.rewritten = 0

    def note_gather(self, partition: str, indexes: Indexes, fields: Sequence[str], copied_nbytes: int) -> None:
        """A read of these rows had to copy so many bytes from several places. Cheap; never waits, never raises."""
        if self._after <= 0 or copied_nbytes < GATHERED_NBYTES:
            return
        names = tuple(fields)
        key = (partition, indexes.tobytes(), names)
        with self._changed:
            count = self._gathers.pop(key, 0) + 1
            if count < self._after:
                self._gathers[key] = count
                if len(self._gathers) > _REMEMBERED:
                    self._gathers.popitem(last=False)
                return
            if self._stopped or len(self._queue) >= _QUEUED:
                return
            self._queue.append((partition, indexes.copy(), names))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="transferqueue-coalescer", daemon=True)
                self._thread.start()
            self._changed.notify()

    def stop(self) -> None:
        """Ends the thread after what it is at. Idempotent."""
        with self._changed:
            self._stopped = True
            self._queue.clear()
            self._changed.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def continue_in_child(self) -> None:
        """After a fork: the thread stayed in the parent, which may have held the lock."""
        self._changed = threading.Condition()
        self._gathers.clear()
        self._queue.clear()
        self._thread = None

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._queue and not self._stopped:
                    self._changed.wait(_IDLE_S)
                if self._stopped or not self._queue:
                    self._thread = None
                    return
                request = self._queue.popleft()
            try:
                moved = self._rewrite(*request)
            except (TransferQueueError, OSError, MemoryError) as error:
                # Cleared, full, or ended: the rows are read as before.
                _log.debug("rows of %r are not coalesced: %s", request[0], error)
            else:
                self.rewritten += moved

    def _rewrite(self, partition: str, indexes: Indexes, fields: tuple[str, ...]) -> int:
        # A row that is named twice (a pad) is moved once.
        _, first = np.unique(indexes, return_index=True)
        distinct = np.ascontiguousarray(indexes[np.sort(first)])
        resolved = self._store.resolve(partition, indexes=distinct, fields=fields)
        try:
            # A field that is missing on some row may be on its way, and the next read tells.
            if len(resolved.gone) or any(
                int(resolved.pieces(number)[:, 1].sum()) != len(distinct) for number in range(len(fields))
            ):
                return 0
            rewriting = Rewriting(resolved, fields)
            if not rewriting.nbytes or not self._affordable(rewriting.nbytes):
                return 0
            reservation = self._store.reserve(rewriting.nbytes, 0.0)
            try:
                return rewriting.write(self._store, reservation)
            except BaseException:
                with contextlib.suppress(ValueError):  # the error came behind the publication
                    reservation.abandon()
                raise
        finally:
            resolved.release()

    def _affordable(self, nbytes: int) -> bool:
        figures = self._store.stats()
        unnamed = figures["used_bytes"] - figures["live_bytes"]
        return nbytes * _SHARE_OF_FREE <= figures["free_bytes"] and unnamed * _SHARE_OF_LIVE <= figures["live_bytes"]
