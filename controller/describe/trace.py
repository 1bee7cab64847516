"""What happens in calls on a group, as they happen."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

from transferqueue.controller.describe.traced_call import TracedCall
from transferqueue.controller.remote_traceback import one_line
from transferqueue.workers.pending import all_ready

if TYPE_CHECKING:
    from transferqueue.controller.rank_set import RankSet

_TICK_S = 0.05


class Trace:
    """Prints, for each call on a set of ranks, what each rank got and whose outputs were collected; see
    `WorkerGroup.trace`, which makes it. `calls` has the same for programs.

    A call is printed when it is sent, before anything is waited for, and again when its result was fetched. Ranks that
    have not answered by the deadline are named, once per call, by a thread of the trace.
    """

    def __init__(self, ranks: RankSet, timeout_s: float, file: TextIO | None) -> None:
        self.calls: list[TracedCall] = []
        self._ranks = ranks
        self._timeout_s = timeout_s
        self._file = file
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="group-trace", daemon=True)

    def __enter__(self) -> Trace:
        self._ranks.traces.append(self)
        self._watcher.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ranks.traces.remove(self)
        self._stopped.set()
        self._watcher.join()

    def sent(self, method: str, sent: Any) -> TracedCall:
        """Notes and prints a call that is about to be sent."""
        with self._lock:
            call = TracedCall(len(self.calls) + 1, method, sent)
            self.calls.append(call)
            self._print(call.sent_lines())
        return call

    def done(self, call: TracedCall, collected: Sequence[int]) -> None:
        """Notes and prints that the result is there."""
        self._end(call, "done", tuple(collected))

    def failed(self, call: TracedCall, error: BaseException) -> None:
        """Notes and prints that the call raised."""
        call.error = one_line(error)
        self._end(call, "failed", ())

    def _end(self, call: TracedCall, state: Any, collected: tuple[int, ...]) -> None:
        with self._lock:
            if call.state != "running":
                return
            call.state, call.collected, call.pending = state, collected, {}
            call.seconds = time.monotonic() - call.started_s
            self._print([call.end_line()])

    def _print(self, lines: Sequence[str]) -> None:
        print("\n".join(lines), file=self._file or sys.stdout, flush=True)

    def _watch(self) -> None:
        told: set[int] = set()
        while not self._stopped.wait(_TICK_S):
            now_s = time.monotonic()
            for call in list(self.calls):
                if call.number in told or call.state != "running" or now_s - call.started_s < self._timeout_s:
                    continue
                told.add(call.number)
                missing = unanswered(call)
                if missing:
                    with self._lock:
                        self._print([call.missing_line(missing)])


def unanswered(call: TracedCall) -> list[int]:
    """The ranks whose outputs are not there yet."""
    return [rank for rank, pending in call.pending.items() if not all_ready([pending])]
