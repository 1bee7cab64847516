"""Every metric that a session exports: its name, type, labels and meaning. The collector, the page ``docs/metrics.md``
and the tests go by this list."""

from __future__ import annotations

from dataclasses import dataclass

from transferqueue.nodes.replica_figures import MEANINGS as REPLICA_MEANINGS
from transferqueue.session_stats import MEANINGS

PREFIX = "transferqueue_"
# Of the sizes in the statistics, those of the session; the others are a process's own.
STORAGE_SIZES = (
    *("total_bytes", "reserved_bytes", "used_bytes", "live_bytes", "free_bytes", "leased_bytes", "pending_bytes"),
    *("arena_bytes", "retired_bytes", "warm_bytes", "huge_bytes", "spilled_bytes"),
    *("spill_total_bytes", "spill_reserved_bytes", "spill_free_bytes", "spill_retired_bytes"),
    *("largest_free_extent_bytes", "headroom_used_bytes"),
)
_RESERVED = "payload that memory was set aside for so far; it grows up to the total"


@dataclass(frozen=True)
class Metric:
    """One family.

    Attributes:
        name: as it stands in a query, without the endings that a histogram's series have.
        kind: "gauge", "counter" or "histogram".
        unit: "bytes", "seconds", or what is counted.
        labels: names, in the order of the values that `readings` gives.
    """

    name: str
    kind: str
    unit: str
    meaning: str
    labels: tuple[str, ...] = ()


def _metric(name: str, kind: str, unit: str, meaning: str, *labels: str) -> Metric:
    return Metric(PREFIX + name, kind, unit, meaning, labels)


CATALOGUE = (
    _metric("up", "gauge", "0 or 1", "whether the session could be read; all other metrics are missing when not"),
    _metric(
        "session_info", "gauge", "1", "which session this is, and the version that serves it", "session", "version"
    ),
    *(
        _metric(f"storage_{name}", "gauge", "bytes", _RESERVED if name == "reserved_bytes" else MEANINGS[name])
        for name in STORAGE_SIZES
    ),
    _metric("storage_free_extents", "gauge", "pieces", MEANINGS["free_extents"]),
    _metric("index_used_bytes", "gauge", "bytes", "metadata index: rows, keys, tags, cells"),
    _metric("index_total_bytes", "gauge", "bytes", "what the metadata index may grow to (storage.index_size)"),
    _metric(
        "rows",
        "gauge",
        "rows",
        "rows of a partition by what was produced: 'ready' have every field of the partition, 'partial' some, 'empty' "
        "none",
        *("partition", "state"),
    ),
    _metric(
        "partition_live_bytes", "gauge", "bytes", "payload that the partition's rows name, on any node", "partition"
    ),
    _metric(
        "task_consumed_rows",
        "gauge",
        "rows",
        "rows of the partition that the task was given since its reset, cleared ones included",
        *("partition", "task"),
    ),
    _metric("clients", "gauge", "processes", "attached: 'alive', or 'dead' and not yet reaped", "state"),
    _metric("puts_total", "counter", "puts", "publications: puts of fields or tags, commits, insertions of rows"),
    _metric("put_rows_total", "counter", "rows", "rows that puts wrote to"),
    _metric("put_bytes_total", "counter", "bytes", "payload that puts published"),
    _metric(
        "put_seconds",
        "histogram",
        "seconds",
        "a put, from asking for room until it is visible; waiting for room is not in it, and of what was computed in "
        "place only the publication is",
    ),
    _metric("gets_total", "counter", "gets", "reads, one for each partition of the metadata"),
    _metric(
        "node_bytes_total",
        "counter",
        "bytes",
        "payload that came from other nodes ('pulled', once for all processes of the node) or went to them ('served')",
        "direction",
    ),
    *(_metric(name, "gauge", name.rpartition("_")[2], meaning) for name, meaning in REPLICA_MEANINGS.items()),
    _metric("get_rows_total", "counter", "rows", "rows that gets returned"),
    _metric("get_bytes_total", "counter", "bytes", "payload that gets handed out: 'viewed' or 'copied'", "how"),
    _metric(
        "get_seconds",
        "histogram",
        "seconds",
        "a get, from its look-up until the TensorDict is made; waiting for rows is not in it",
    ),
    _metric(
        "wait_seconds",
        "histogram",
        "seconds",
        "calls that had to wait: for 'data' (rows or fields that were not ready) or 'room' (a put into a full store)",
        "waited_for",
    ),
    _metric("wait_timeouts_total", "counter", "waits", "waits that ended in an error", "waited_for"),
    _metric("write_lock_wait_seconds", "histogram", "seconds", "waiting for the lock of the metadata index"),
    _metric("write_lock_hold_seconds", "histogram", "seconds", "holding the lock of the metadata index"),
    _metric("reaped_clients_total", "counter", "processes", "clients that died; what they held was given back"),
    _metric(
        "limit_bound",
        "gauge",
        "bytes, rows or versions",
        "what the partition may hold at most, by limit: 'max_bytes', 'max_unconsumed_rows', 'max_version_lag'",
        *("partition", "limit"),
    ),
    _metric("limit_held", "gauge", "bytes, rows or versions", "what it holds of that", "partition", "limit"),
    _metric("limit_waits_total", "counter", "puts", "that waited at a limit of their partition"),
    _metric("limit_refusals_total", "counter", "puts", "that failed at a limit of their partition"),
    _metric("limit_shed_rows_total", "counter", "rows", "removed to make room at a limit, or too old to be put"),
    _metric("coalesced_blocks_total", "counter", "blocks", "made out of rows that lay scattered"),
    _metric("coalesced_bytes_total", "counter", "bytes", "size of those blocks"),
    _metric("spilled_blocks_total", "counter", "blocks", "moved from memory to the spill file"),
    _metric("spilled_bytes_total", "counter", "bytes", "size of those blocks"),
    _metric("compacted_blocks_total", "counter", "blocks", "made out of what still lived in sparse ones"),
    _metric("compacted_bytes_total", "counter", "bytes", "size of those blocks"),
    _metric(
        "bridge_calls_total",
        "counter",
        "calls",
        "calls of a worker's method with metadata: 'ok' or 'failed'",
        *("method", "outcome"),
    ),
    _metric("bridge_rows_total", "counter", "rows", "rows of the first metadata argument, pads included", "method"),
    _metric(
        "bridge_seconds_total",
        "counter",
        "seconds",
        "in 'get' (metadata to TensorDicts, waiting included), in 'run' (the method itself), in 'put' (its output back "
        "into the store)",
        *("method", "phase"),
    ),
    _metric(
        "bridge_bytes_total",
        "counter",
        "bytes",
        "payload given to the method: 'viewed' or 'copied'",
        *("method", "how"),
    ),
)
"""In the order in which they are exported."""
