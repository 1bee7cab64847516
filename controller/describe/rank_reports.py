"""Asking ranks for their reports, some of which may never answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from transferqueue.controller.describe.rank_report import RankReport
from transferqueue.workers.ray_runtime import require_ray

Key = tuple[int, str | None]
"""Position of the rank, and the role whose meshes are asked for."""


class RankReports:
    """The reports of the actors of one start. A question that a rank has not answered yet is not asked again: one that
    hangs would find as many calls waiting as `describe` was called. `last` has the last answers and their time.
    """

    def __init__(self) -> None:
        self._asked: dict[Key, Any] = {}
        self.last: dict[Key, tuple[float, RankReport]] = {}

    def ask(self, asks: Mapping[Key, Callable[[], Any]], timeout_s: float) -> dict[Key, RankReport]:
        """The reports that came within `timeout_s`; `asks` starts a question and returns its Ray reference."""
        ray = require_ray("RankReports")
        for key, ask in asks.items():
            if key not in self._asked:
                self._asked[key] = ask()
        refs = {self._asked[key]: key for key in asks}
        answered, _ = ray.wait(list(refs), num_returns=len(refs), timeout=timeout_s) if refs else ([], [])
        found = {}
        for ref in answered:
            key = refs[ref]
            self._asked.pop(key, None)
            try:
                found[key] = ray.get(ref)
            except ray.exceptions.RayError:  # a dead rank; its state is asked for otherwise
                continue
            self.last[key] = time.monotonic(), found[key]
        return found

    def earlier(self, key: Key) -> tuple[float, RankReport] | None:
        """The age in seconds of the last report, and the report."""
        if key not in self.last:
            return None
        when_s, report = self.last[key]
        return time.monotonic() - when_s, report
