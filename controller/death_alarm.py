"""Telling the main thread of a program, whatever it is doing, that a rank died."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable
from types import FrameType
from typing import Any

from transferqueue.controller.errors import WorkerDiedError

ALARM_SIGNAL = signal.SIGURG
"""Ignored by a process that has no handler for it, and in use by hardly any."""

_posted: deque[DeathAlarm] = deque()
_before: Any = None


class DeathAlarm:
    """Raises `error` once in the main thread, between two of its Python instructions, as Ctrl-C does.

    Waiting in `time.sleep` or for a lock ends at once. Inside a call of Ray an exception from a signal handler would be
    lost; there the alarm waits until the call is over, and a wait for a worker group looks once a second.

    Args:
        needed: asked before raising; False when the main thread was told in another way meanwhile.
    """

    def __init__(self, error: WorkerDiedError, needed: Callable[[], bool]) -> None:
        self._error = error
        self._needed = needed

    def post(self) -> None:
        """From any thread. Has no effect before `prepare`."""
        _posted.append(self)
        self.ring()

    def ring(self) -> bool:
        """Interrupts the main thread when the error is still to be raised; whether it was."""
        if self not in _posted:
            return False
        signal.pthread_kill(threading.main_thread().ident or 0, ALARM_SIGNAL)
        return True


def prepare() -> bool:
    """Gets the main thread ready for alarms; to be called from it. False from another thread, which has no handlers."""
    global _before
    if threading.current_thread() is not threading.main_thread():
        return False
    current = signal.getsignal(ALARM_SIGNAL)
    if current is not _on_signal:
        _before = current
        signal.signal(ALARM_SIGNAL, _on_signal)
    return True


def raise_posted() -> None:
    """In the main thread: raises what was posted and not yet raised."""
    if _posted and threading.current_thread() is threading.main_thread():
        _raise_one()


def _raise_one() -> None:
    alarm = _posted.popleft()  # only this thread takes any
    if alarm._needed():
        raise alarm._error


def _on_signal(number: int, frame: FrameType | None) -> None:
    if _posted:
        if not _in_ray(frame):
            _raise_one()
    elif callable(_before):
        _before(number, frame)


def _in_ray(frame: FrameType | None) -> bool:
    ray = sys.modules.get("ray")
    if frame is None or ray is None or ray.__file__ is None:
        return False
    return frame.f_code.co_filename.startswith(os.path.dirname(ray.__file__) + os.sep)
