"""A worker group that measures what passes through the controller."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from examples.common.pickled_size import pickled_nbytes
from transferqueue.controller import Broadcast, GroupFuture, PerRank, RayWorkerGroup


@dataclass
class Meter:
    """Bytes that the controller serialised into calls and received back, summed over the groups that share it.

    `own_cpu_s` is what the measuring itself took of the controller's thread, to be taken off its time.
    """

    sent_bytes: int = 0
    received_bytes: int = 0
    calls: int = 0
    own_cpu_s: float = 0.0


class MeteredWorkerGroup(RayWorkerGroup):
    """Adds up the pickled size of every argument that leaves and every output that arrives.

    The ranks of a replica get the same shard; it counts once per rank, because it goes into each call. Calls with
    metadata travel as frames, which hold the same bytes in a smaller envelope: the pickled size is a little too much.
    """

    def __init__(self, *args: Any, meter: Meter, **kwargs: Any) -> None:
        self.meter = meter
        super().__init__(*args, **kwargs)

    def submit_all(self, method_name: str, args: Sequence[Any], kwargs: Mapping[str, Any], finish: Any) -> GroupFuture:
        self._count_sent(args, kwargs)

        def measured_finish(outputs: list[Any]) -> Any:
            self._count_received(outputs)
            return finish(outputs)

        return super().submit_all(method_name, args, kwargs, measured_finish)

    def call_all(self, method_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        calls = self.meter.calls
        outputs = super().call_all(method_name, args, kwargs)
        if self.meter.calls == calls:  # it went as frames and not by way of submit_all
            self._count_sent(args, kwargs)
            self._count_received(outputs)
        return outputs

    def _count_sent(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        started_s = time.thread_time()
        self.meter.calls += 1
        for value in (*args, *kwargs.values()):
            self.meter.sent_bytes += sum(pickled_nbytes(piece) for piece in self._pieces(value))
        self.meter.own_cpu_s += time.thread_time() - started_s

    def _count_received(self, outputs: list[Any]) -> None:
        started_s = time.thread_time()
        self.meter.received_bytes += sum(pickled_nbytes(output) for output in outputs)
        self.meter.own_cpu_s += time.thread_time() - started_s

    def _pieces(self, value: Any) -> list[Any]:
        if isinstance(value, PerRank):
            return list(value)
        inner = value.value if isinstance(value, Broadcast) else value
        return [inner] * self.world_size
