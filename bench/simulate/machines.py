"""Nodes, their network cards and the processes that others queue at."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import simpy

from bench.simulate.costs import Cluster, Costs

Process = Generator[simpy.Event, Any, None]
# A transfer gives way to others this often.
_PIECES = 8


@dataclass
class Usage:
    """What was busy for how long, and what crossed the wire.

    Attributes:
        busy_s: resource -> seconds, over all its units.
        waited_s: resource -> seconds that somebody stood in its queue.
        sent_bytes, received_bytes: by node.
        memory_bytes, peak_bytes: by node: payload that lies there, and the most that did.
    """

    busy_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    waited_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    sent_bytes: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    received_bytes: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    memory_bytes: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    peak_bytes: dict[int, float] = field(default_factory=lambda: defaultdict(float))

    def hold(self, node: int, nbytes: float) -> None:
        """So many more bytes lie on the node (fewer where negative)."""
        self.memory_bytes[node] += nbytes
        self.peak_bytes[node] = max(self.peak_bytes[node], self.memory_bytes[node])


class Machines:
    """The cluster in one simulation."""

    def __init__(self, env: simpy.Environment, cluster: Cluster, costs: Costs) -> None:
        self.env = env
        self.cluster = cluster
        self.costs = costs
        self.usage = Usage()
        self._queues: dict[str, simpy.Resource] = {}

    def queue(self, name: str, units: int = 1) -> simpy.Resource:
        """The resource of that name, made on first use."""
        if name not in self._queues:
            self._queues[name] = simpy.Resource(self.env, capacity=units)
        return self._queues[name]

    def serve(self, name: str, seconds: float) -> Process:
        """Waits for the resource and keeps it busy."""
        began_s = self.env.now
        with self.queue(name).request() as turn:
            yield turn
            self.usage.waited_s[name] += self.env.now - began_s
            self.usage.busy_s[name] += seconds
            yield self.env.timeout(seconds)

    def call(self, source: int, target: int, server: str, seconds: float) -> Process:
        """A request from one node to a process of another, and the answer."""
        if source != target:
            yield self.env.timeout(2 * self.cluster.wire_s + self.costs.call_s)
        yield from self.serve(server, seconds)

    def transfer(self, source: int, target: int, nbytes: float, server: str, receiver_bytes_s: float) -> Process:
        """Bytes of one node into the memory of another: served by a process there, at most as fast as the receiver
        takes them. Within a node nothing moves."""
        if source == target or not nbytes:
            return
        yield self.env.timeout(2 * self.cluster.wire_s + self.costs.call_s)
        piece = nbytes / _PIECES
        wire_s = piece / self.cluster.wire_bytes_s
        for _ in range(_PIECES):
            yield from self.serve(server, piece / self.costs.serve_bytes_s)
            out, into = f"wire out of {source}", f"wire into {target}"
            began_s = self.env.now
            with self.queue(out).request() as sending:
                yield sending
                self.usage.waited_s[out] += self.env.now - began_s
                began_s = self.env.now
                with self.queue(into).request() as receiving:
                    yield receiving
                    self.usage.waited_s[into] += self.env.now - began_s
                    self.usage.busy_s[out] += wire_s
                    self.usage.busy_s[into] += wire_s
                    yield self.env.timeout(wire_s)
            yield self.env.timeout(max(0.0, piece / receiver_bytes_s - wire_s))
        self.usage.sent_bytes[source] += nbytes
        self.usage.received_bytes[target] += nbytes
