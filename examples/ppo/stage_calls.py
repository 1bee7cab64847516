"""The controller's calls: a stage with the metadata of a batch, of which it never sees a row."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from examples.common.metrics import Metrics, mean_metrics
from examples.common.pickled_size import pickled_nbytes
from examples.common.stage import Stage
from transferqueue import BatchMeta
from transferqueue.workers import Future


class StageCalls:
    """The calls of one step on one batch. Stages that do not block are waited for where a later one needs their fields.

    Args:
        groups: worker groups by the names that stages use.
        batch: the metadata to start from.
    """

    def __init__(self, groups: Mapping[str, Any], batch: BatchMeta) -> None:
        self.batch = batch
        self.metrics: Metrics = {}
        self.stage_s: dict[str, float] = {}
        self.metadata_nbytes = 0
        self._groups = groups
        self._running: list[tuple[Stage, Future]] = []

    def run(self, stage: Stage, extra_info: Mapping[str, Any] | None = None) -> None:
        """Calls the stage on the fields that it reads, with `extra_info` beside them; adds what it wrote."""
        started_s = time.perf_counter()
        self._finish({*stage.inputs})
        chosen = self.batch.select_fields(stage.inputs)
        chosen.extra_info.update(extra_info or {})
        self.metadata_nbytes += pickled_nbytes(chosen)
        answer = getattr(self._groups[stage.group], stage.method)(chosen)
        if isinstance(answer, Future):
            self._running.append((stage, answer))
        else:
            self._add(answer)
        self.stage_s[stage.name] = time.perf_counter() - started_s

    def finish(self) -> BatchMeta:
        """Waits for what still runs; the batch with all fields."""
        self._finish(None)
        return self.batch

    def _finish(self, wanted: set[str] | None) -> None:
        for stage, future in list(self._running):
            if wanted is None or wanted & {*stage.outputs}:
                self._running.remove((stage, future))
                self._add(future.get())

    def _add(self, answer: BatchMeta) -> None:
        self.metadata_nbytes += pickled_nbytes(answer)
        self.metrics.update(mean_metrics(answer.extra_info))
        answer.clear_extra_info()
        self.batch = self.batch.union(answer)
