"""The unit of every number: one single-thread memcpy of the same bytes into warm shared memory, in the same run.

Needs only numpy.
"""

from __future__ import annotations

import ctypes
import mmap
import resource
import statistics
import time
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np


class MemcpyUnit:
    """A warm private source and a warm shared destination of `nbytes`; `seconds()` is one memcpy between them."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self._source = np.ones(nbytes, dtype=np.uint8)
        self._mapping = mmap.mmap(-1, nbytes, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)
        self._destination = np.frombuffer(self._mapping, dtype=np.uint8)
        self.seconds()  # the first touch is not the unit

    def seconds(self) -> float:
        """Of one memcpy."""
        began = time.perf_counter()
        ctypes.memmove(self._destination.ctypes.data, self._source.ctypes.data, self.nbytes)
        return time.perf_counter() - began


@dataclass
class Measured:
    """Raw seconds of one claim for one system; one entry a round. `get_s` of several readers: the slowest.

    `facts` holds whatever else was measured beside them: numbers (JSON) by a name that says the unit.
    """

    claim: str
    system: str
    nbytes: int = 0
    put_s: list[float] = field(default_factory=list)
    get_s: list[float] = field(default_factory=list)
    memcpy_s: list[float] = field(default_factory=list)
    checked_rows: int = 0
    facts: dict[str, Any] = field(default_factory=dict)

    def add_touches(self, touch_s: list[float]) -> None:
        """Seconds that the consumer then needed to touch every page of what it got, one entry a round: as facts, alone
        and together with the get (and the put) before it. A system that maps lazily pays here."""
        unit = statistics.median(self.memcpy_s)
        read = [get + touch for get, touch in zip(self.get_s, touch_s, strict=True)]
        self.facts["touch_ratio"] = statistics.median(touch_s) / unit
        self.facts["get_touch_ratio"] = statistics.median(read) / unit
        self.facts["put_get_touch_ratio"] = (
            statistics.median(put + both for put, both in zip(self.put_s, read, strict=True)) / unit
        )

    def as_json(self) -> dict[str, Any]:
        """Everything, raw seconds included."""
        return asdict(self) | {"summary": self.summary()}

    def summary(self) -> dict[str, float]:
        """Medians and spread in ms; ratios to the median memcpy of the same run, where one was taken."""
        found: dict[str, float] = {}
        unit = statistics.median(self.memcpy_s) if self.memcpy_s else None
        if unit is not None:
            found["memcpy_ms"] = unit * 1e3

        def add(name: str, seconds: list[float]) -> None:
            found[f"{name}_ms"] = statistics.median(seconds) * 1e3
            if unit is not None:
                found[f"{name}_ratio"] = statistics.median(seconds) / unit

        for name, values in (("put", self.put_s), ("get", self.get_s)):
            if values:
                add(name, values)
                found[f"{name}_ms_min"], found[f"{name}_ms_max"] = min(values) * 1e3, max(values) * 1e3
        if self.put_s and self.get_s:
            add("put_get", [put + get for put, get in zip(self.put_s, self.get_s, strict=True)])
        return found


def page_faults() -> tuple[int, int]:
    """(minor, major) faults of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_minflt, usage.ru_majflt
