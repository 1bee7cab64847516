"""Which calls a server works on now, and what it answered lately: retries join the one and are given the other."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

KEEP_S = 60.0
KEEP_NBYTES = 32 << 20
KEEP_COUNT = 4096


class CallRecord:
    """Runs each request id once, however many attempts ask for it. Thread-safe.

    Answers are kept for a minute, and less when there are many or large ones. That spares work and covers the common
    retry; what must never be applied twice is recorded with the change itself, by whoever makes it.
    """

    def __init__(self, keep_s: float = KEEP_S, keep_nbytes: int = KEEP_NBYTES, keep_count: int = KEEP_COUNT) -> None:
        self._keep_s = keep_s
        self._keep_nbytes = keep_nbytes
        self._keep_count = keep_count
        self._guard = threading.Lock()
        self._running: dict[bytes, _Running] = {}
        self._answers: OrderedDict[bytes, tuple[float, bytes]] = OrderedDict()
        self._nbytes = 0

    def answer(self, request_id: bytes, work: Callable[[], tuple[bytes, bool]], join_s: float) -> bytes | None:
        """The answer: of `work`, called here when no attempt of this id was yet; it says whether to keep that, which
        is not needed for what may as well be done again. None: another attempt is being worked on, and was for `join_s`
        seconds more."""
        with self._guard:
            kept = self._answers.get(request_id)
            if kept is not None:
                return kept[1]
            running = self._running.get(request_id)
            first = running is None
            if running is None:
                running = self._running[request_id] = _Running()
        if not first:
            return running.answer if running.done.wait(join_s) else None
        answer, keep = None, False
        try:
            answer, keep = work()
            running.answer = answer
            return answer
        finally:
            with self._guard:
                del self._running[request_id]
                if answer is not None and keep:
                    self._keep(request_id, answer)
            running.done.set()

    def _keep(self, request_id: bytes, answer: bytes) -> None:
        now = time.monotonic()
        self._answers[request_id] = now, answer
        self._nbytes += len(answer)
        while self._answers:
            kept_s, oldest = next(iter(self._answers.values()))
            over = self._nbytes > self._keep_nbytes or len(self._answers) > self._keep_count
            if not over and now - kept_s <= self._keep_s:
                return
            self._answers.popitem(last=False)
            self._nbytes -= len(oldest)


class _Running:
    def __init__(self) -> None:
        self.done = threading.Event()
        self.answer: bytes | None = None
