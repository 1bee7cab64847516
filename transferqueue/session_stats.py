"""What a session holds, for people and for tests."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field

from transferqueue.partition_limits import PartitionLimits


@dataclass(frozen=True)
class ClientStats:
    """One attached process.

    Attributes:
        pid: for people; whether it lives is decided by a lock, not by the pid.
        leases: blocks it holds views of.
        leased_bytes, pending_bytes: what it keeps from being freed, and what it reserved and has not published.
        age_s: seconds since it attached.
    """

    owner: int
    pid: int
    alive: bool
    leases: int
    leased_bytes: int
    pending_bytes: int
    age_s: float


MEANINGS = {
    "total_bytes": "payload that the session may hold (storage.size)",
    "used_bytes": "committed blocks, exact",
    "live_bytes": "of the used ones, what rows still name",
    "free_bytes": "total less used, pending, arena and retired",
    "leased_bytes": "blocks that somebody holds a view of",
    "pending_bytes": "reserved by puts and allocations in flight",
    "arena_bytes": "reserved ahead by processes for small puts",
    "retired_bytes": "of no row any more; freed when the last view is dropped",
    "warm_bytes": "free memory that was touched before and is kept for reuse; trim() gives it back",
    "huge_bytes": "payload on huge pages, which make mapping a view cheap; 0 where the system has none to give",
    "gather_pool_bytes": "private memory that this process keeps for its next read of scattered rows, at most 128 MiB; "
    "trim() gives it back, too",
    "spilled_bytes": "committed blocks in the spill file, exact; what stands above is of memory",
    "spill_total_bytes": "what the spill file may grow to (spill.size); 0: the session has none",
    "spill_reserved_bytes": "of it, what disk space was set aside for so far; trim() gives back what is free",
    "spill_free_bytes": "of the total, what further blocks may take if the disk has it",
    "spill_retired_bytes": "on disk and of no row any more; freed when the last view is dropped",
    "largest_free_extent_bytes": "the largest piece of free memory that is backed; what is not backed yet is one more",
    "free_extents": "pieces that the backed free memory is in",
    "headroom_used_bytes": "beyond the total: rows that compaction of a full store set down there until there is room",
    "oldest_read_pid": "process in the middle of the oldest read of the index that is behind the last commit; 0: none. "
    "One that is stopped there keeps pages of the index from being used again",
    "oldest_read_age_s": "seconds since that read was first noticed; the service looks once a second",
    "oldest_read_commits": "commits that it is behind",
    "copies_bytes": "of the used ones, copies of rows that other nodes have; they go first when room is wanted. 0 in a "
    "session of one machine",
    "puts": "by all processes since the session started",
    "gets": "by all processes since the session started",
}
"""What the numbers of a session mean."""


@dataclass(frozen=True)
class Stats:
    """Sizes in bytes.

    Attributes:
        rows: counts by state: "total", "ready" (has every field of its partition), "partial", "empty" (no field); and
            "unconsumed": those with data that no task has consumed (reads by key or metadata consume nothing).
        clients: who is attached.
        limits: partition -> what it may hold and what is there, of the partitions that have limits.
    """

    total_bytes: int
    used_bytes: int
    live_bytes: int
    free_bytes: int
    leased_bytes: int
    pending_bytes: int
    arena_bytes: int
    retired_bytes: int
    warm_bytes: int
    huge_bytes: int
    gather_pool_bytes: int
    spilled_bytes: int
    spill_total_bytes: int
    spill_reserved_bytes: int
    spill_free_bytes: int
    spill_retired_bytes: int
    largest_free_extent_bytes: int
    free_extents: int
    headroom_used_bytes: int
    oldest_read_pid: int
    oldest_read_age_s: int
    oldest_read_commits: int
    puts: int
    gets: int
    copies_bytes: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    clients: list[ClientStats] = field(default_factory=list)
    limits: Mapping[str, PartitionLimits] = field(default_factory=dict)


_EXPLAINED = "\n".join(f"    {name}: {meaning}." for name, meaning in MEANINGS.items())
Stats.__doc__ = inspect.cleandoc(Stats.__doc__ or "") + "\n" + _EXPLAINED
