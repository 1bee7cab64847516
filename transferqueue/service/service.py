"""Housekeeping of a session: cleans up after dead processes, frees what was retired, touches memory ahead of use.

It holds no state of its own and nothing on the path of a put or get waits for it. One runs per session, which a lock
file decides: in the process that called ``init``, in ``tq serve``, or in whichever client noticed that there is none.
"""

from __future__ import annotations

import os
import threading
import time
import weakref

from transferqueue import _native
from transferqueue.config import Config
from transferqueue.errors import ClosedError, SessionNotFoundError, TransferQueueError
from transferqueue.logs import get_logger
from transferqueue.metrics.endpoint import MetricsEndpoint
from transferqueue.service.coalescer import Coalescer
from transferqueue.service.compactor import Compactor
from transferqueue.storage.names import SessionPaths
from transferqueue.storage.session_lock import SessionLock

_log = get_logger("service")
TICK_S = 1.0
_NOTICE_S = 2.0
_POPULATE_STEP_BYTES = 64 << 20
# Making huge pages takes about 2 ms of processor time a MiB, once: a third of a core while there is some to do.
_HUGE_STEP_BYTES = 16 << 20
_HUGE_REST_S = 0.1
# Between two steps of a compaction; none while room is scarce.
_COMPACT_REST_S = 0.05
_services: weakref.WeakSet[StorageService] = weakref.WeakSet()


class StorageService:
    """The service of one session, running in a thread of this process while it holds the session's service lock."""

    def __init__(self, paths: SessionPaths, store: _native.Store, config: Config) -> None:
        self._paths = paths
        self._store = store
        self._left_to_populate_bytes = config.storage.populate
        self._huge_pages = config.storage.huge_pages
        self._making_huge = False
        keep_free = config.spill.keep_free
        self._keep_free_bytes = (
            (config.storage.size // 16 if keep_free is None else keep_free) if config.spill.dir else 0
        )
        self._spilling = False
        self._compactor = Compactor(store, config.service.compact_below)
        self._disk_compactor = (
            Compactor(store, config.service.compact_below, spilled=True) if config.spill.dir else None
        )
        self._compacting = False
        self._stopping = threading.Event()
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._lock: SessionLock | None = None
        self._next_look_s = 0.0
        self._metrics = MetricsEndpoint(paths, store, config.metrics)
        self.reaped = 0
        # Of every process, whoever runs the rest of the service: only the reader knows what it reads again.
        self._coalescer = Coalescer(store, config.service.coalesce_after)
        self.note_gather = self._coalescer.note_gather
        _services.add(self)

    @property
    def running(self) -> bool:
        """Whether this process runs the session's service."""
        return self._thread is not None

    def start(self) -> bool:
        """Starts the service here unless one runs already, here or elsewhere. Returns whether it runs here."""
        with self._guard:
            if self._thread is not None:
                return True
            self._next_look_s = time.monotonic() + _NOTICE_S
            try:
                lock = SessionLock(self._paths.service_lock, create=True)
            except (FileNotFoundError, NotADirectoryError):
                return False  # the session ended; the next call on the store says so
            if not lock.try_exclusive():
                lock.close()
                return False
            self._lock = lock
            self._stopping = threading.Event()
            self._thread = threading.Thread(
                target=self._run, args=(self._stopping,), name="transferqueue-service", daemon=True
            )
            self._thread.start()
            self._metrics.start()
            return True

    def start_if_missing(self) -> None:
        """Called with every client call: looks once in two seconds whether the session's service died, takes over."""
        if self._thread is None and time.monotonic() >= self._next_look_s and self.start():
            _log.info("session %r had no storage service; this process runs it now", self._paths.name)

    def stop(self) -> None:
        """Ends the threads and gives up the lock. Idempotent."""
        self._coalescer.stop()
        with self._guard:
            thread, self._thread = self._thread, None
            self._stopping.set()
            # Not to be taken up again by a late call of a client that is closing.
            self._next_look_s = float("inf")
            if thread is not None and thread is not threading.current_thread():
                thread.join()
            self._metrics.stop()
            if self._lock is not None:
                self._lock.close()
                self._lock = None

    def tick(self) -> None:
        """One round of housekeeping.

        Raises:
            SessionNotFoundError, ClosedError: nothing left to keep.
        """
        for owner, pid in self._store.reap():
            self.reaped += 1
            _log.info("session %r: client %d (pid %d) died; what it held is given back", self._paths.name, owner, pid)
        # Those that ran out cost nobody anything but a look; that their rows are back is news to whoever waits.
        self._store.drop_claims()
        self._store.reclaim()
        self._store.drop_requests()
        if self._left_to_populate_bytes > 0:
            done = self._store.populate(min(_POPULATE_STEP_BYTES, self._left_to_populate_bytes))
            self._left_to_populate_bytes = self._left_to_populate_bytes - done if done else 0
        self._compacting = self._compactor.tick()
        if self._disk_compactor is not None and self._disk_compactor.tick():
            self._compacting = True
        self._making_huge = self._huge_pages and self._store.make_huge(_HUGE_STEP_BYTES) > 0
        self._spilling = self._keep_free_bytes > 0 and self._spill_ahead() > 0

    def _spill_ahead(self) -> int:
        missing = self._keep_free_bytes - self._store.stats()["free_bytes"]
        return self._store.spill(missing) if missing > 0 else 0

    def _rest_s(self) -> float:
        if self._left_to_populate_bytes > 0 or self._spilling:
            return 0.0
        if self._compacting:
            return 0.0 if self._compactor.scarce else _COMPACT_REST_S
        return _HUGE_REST_S if self._making_huge else TICK_S

    def _run(self, stopping: threading.Event) -> None:
        last_error = ""
        # The first round comes at once: an adopted session may be full of what the dead left.
        wait_s = 0.0
        while not stopping.wait(wait_s):
            try:
                self.tick()
                wait_s = self._rest_s()
                last_error = ""
            except (SessionNotFoundError, ClosedError):
                return
            except (TransferQueueError, OSError, MemoryError) as error:
                # A full index or a stuck writer passes; the service must outlive it. Said once, not every second.
                wait_s = TICK_S
                if str(error) != last_error:
                    last_error = str(error)
                    _log.warning("session %r: housekeeping failed and is tried again: %s", self._paths.name, error)

    def _continue_in_child(self) -> None:
        # The thread stayed in the parent; the inherited descriptor would keep the parent's lock alive after its death.
        self._guard = threading.Lock()
        self._coalescer.continue_in_child()
        self._metrics.continue_in_child()
        self._thread = None
        self._left_to_populate_bytes = 0
        self._next_look_s = time.monotonic() + _NOTICE_S
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def _after_fork_in_child() -> None:
    for service in list(_services):
        service._continue_in_child()


os.register_at_fork(after_in_child=_after_fork_in_child)
