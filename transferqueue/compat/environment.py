"""The environment variables of the surface, read in one place and when they are needed."""

from __future__ import annotations

import math
import os

_FETCH_TIMEOUT = "TQ_CONTROLLER_GET_METADATA_TIMEOUT"
_FETCH_INTERVAL = "TQ_CONTROLLER_GET_METADATA_CHECK_INTERVAL"
_LOGGING_LEVEL = "TQ_LOGGING_LEVEL"


def fetch_timeout_s() -> float:
    """Seconds that a fetch waits for enough rows, 5 by default.

    The surface looks every so many seconds (5) and gives up at the first look after the timeout (1); here a row that
    comes ends the wait at once, and only the deadline is the same.

    Raises:
        ValueError: a variable that is no number; it is named.
    """
    timeout_s, interval_s = _seconds(_FETCH_TIMEOUT, 1.0), _seconds(_FETCH_INTERVAL, 5.0)
    if interval_s <= 0:
        return timeout_s
    return (math.floor(timeout_s / interval_s) + 1) * interval_s


def logging_level(default: str) -> str:
    """The level for the loggers of programs."""
    return os.environ.get(_LOGGING_LEVEL) or default


def _seconds(name: str, default: float) -> float:
    text = os.environ.get(name)
    if not text:
        return default
    try:
        seconds = float(text)
    except ValueError:
        raise ValueError(f"{name} must be seconds, not {text!r}") from None
    if not 0 <= seconds < math.inf:
        raise ValueError(f"{name} must be seconds >= 0, not {text!r}")
    return seconds
