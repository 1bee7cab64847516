"""The values behind the catalogue, read from a session's store. One reading costs some index look-ups and, for the rows
by state, a pass over the runs of rows; nothing of it waits for a put or makes one wait."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from transferqueue.metrics.catalogue import PREFIX, STORAGE_SIZES
from transferqueue.nodes.names import is_hidden
from transferqueue.nodes.replica_figures import NOTHING_KEPT_TWICE, ReplicaFigures
from transferqueue.partition_limits import PartitionLimits

if TYPE_CHECKING:
    from transferqueue._native import Store

_COUNTERS = (
    *("put_rows", "put_bytes", "get_rows", "reaped_clients", "coalesced_blocks", "coalesced_bytes"),
    *("spilled_blocks", "spilled_bytes"),
    *("compacted_blocks", "compacted_bytes"),
)
_LATENCIES = {
    "put": ("put_seconds", ()),
    "get": ("get_seconds", ()),
    "data_wait": ("wait_seconds", ("data",)),
    "room_wait": ("wait_seconds", ("room",)),
    "lock_wait": ("write_lock_wait_seconds", ()),
    "lock_hold": ("write_lock_hold_seconds", ()),
}


@dataclass(frozen=True)
class Distribution:
    """Of a latency.

    Attributes:
        sum_s: of all of them.
        buckets: (seconds, how many took less), ascending; the last is infinity and all of them.
    """

    sum_s: float
    buckets: list[tuple[float, int]]


@dataclass
class Readings:
    """Metric name -> (label values, value) each."""

    values: dict[str, list[tuple[tuple[str, ...], float]]] = field(default_factory=dict)
    distributions: dict[str, list[tuple[tuple[str, ...], Distribution]]] = field(default_factory=dict)

    def add(self, name: str, value: float, *labels: str) -> None:
        """One sample of the metric ``transferqueue_<name>``."""
        self.values.setdefault(PREFIX + name, []).append((labels, value))


def distribution(sum_ns: int, classes: Iterable[tuple[int, int]]) -> Distribution:
    """From what the store counts in classes: (end in ns, how often), the last one open."""
    buckets: list[tuple[float, int]] = []
    seen = 0
    for end_ns, count in classes:
        seen += count
        buckets.append((end_ns / 1e9 if end_ns else float("inf"), seen))
    return Distribution(sum_ns / 1e9, buckets)


def read(store: Store, *, session: str, version: str, replicas: ReplicaFigures = NOTHING_KEPT_TWICE) -> Readings:
    """Everything of the catalogue, now.

    Args:
        replicas: what the node of the session says of second copies.

    Raises:
        SessionNotFoundError, ClosedError: there is nothing to read any more.
    """
    found = Readings()
    figures = store.stats()
    found.add("up", 1)
    found.add("session_info", 1, session, version)
    for name in STORAGE_SIZES:
        found.add(f"storage_{name}", figures[name])
    found.add("storage_free_extents", figures["free_extents"])
    for name in ("index_used_bytes", "index_total_bytes"):
        found.add(name, figures[name])
    for name in ("puts", "gets"):
        found.add(f"{name}_total", figures[name])
    _read_rows(found, store)
    alive = [bool(client["alive"]) for client in store.clients()]
    found.add("clients", alive.count(True), "alive")
    found.add("clients", alive.count(False), "dead")
    for name, value in replicas.known().items():
        found.add(name, value)
    _read_counters(found, store)
    for method in store.methods():
        _read_method(found, method)
    return found


def _read_rows(found: Readings, store: Store) -> None:
    for partition in store.census():
        if is_hidden(partition["name"]):
            continue
        for state in ("ready", "partial", "empty"):
            found.add("rows", partition[state], partition["name"], state)
        for task, rows in partition["consumed"].items():
            found.add("task_consumed_rows", rows, partition["name"], task)
    for partition in store.partition_stats():
        if is_hidden(partition["name"]):
            continue
        found.add("partition_live_bytes", partition["live_bytes"], partition["name"])
        if store.limit_epoch:
            _read_limits(found, partition["name"], PartitionLimits.of(store.limit_report(partition["name"])))


def _read_limits(found: Readings, partition: str, limits: PartitionLimits) -> None:
    for limit, (held, bound) in limits.held().items():
        found.add("limit_bound", bound, partition, limit)
        found.add("limit_held", held, partition, limit)


def _read_counters(found: Readings, store: Store) -> None:
    counts = store.counts()
    for name in _COUNTERS:
        found.add(f"{name}_total", counts[name])
    for name in ("limit_waits", "limit_refusals"):
        found.add(f"{name}_total", counts[name])
    found.add("limit_shed_rows_total", counts["shed_rows"])
    for how in ("viewed", "copied"):
        found.add("get_bytes_total", counts[f"get_{how}_bytes"], how)
    for direction in ("pulled", "served"):
        found.add("node_bytes_total", counts[f"{direction}_bytes"], direction)
    for what in ("data", "room"):
        found.add("wait_timeouts_total", counts[f"{what}_timeouts"], what)
    for name, (sum_ns, classes) in store.latencies().items():
        metric, labels = _LATENCIES[name]
        found.distributions.setdefault(PREFIX + metric, []).append((labels, distribution(sum_ns, classes)))


def _read_method(found: Readings, method: dict[str, Any]) -> None:
    name = method["name"]
    found.add("bridge_calls_total", method["calls"] - method["failures"], name, "ok")
    found.add("bridge_calls_total", method["failures"], name, "failed")
    found.add("bridge_rows_total", method["rows"], name)
    for phase in ("get", "run", "put"):
        found.add("bridge_seconds_total", method[f"{phase}_ns"] / 1e9, name, phase)
    for how in ("viewed", "copied"):
        found.add("bridge_bytes_total", method[f"{how}_bytes"], name, how)


def sample_names(metric_name: str, kind: str) -> Iterator[str]:
    """The names that the samples of a metric have in a query."""
    if kind == "histogram":
        yield from (f"{metric_name}_{ending}" for ending in ("bucket", "sum", "count"))
    else:
        yield metric_name
