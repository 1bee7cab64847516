"""Who holds what of a session, since when, and how much that is."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from transferqueue._native import Store
from transferqueue.config import format_size
from transferqueue.text_table import counted

_COMMAND_LIMIT = 60
_START_TIME_FIELD = 22  # of /proc/<pid>/stat, counted from 1


@dataclass(frozen=True)
class LeaseStats:
    """The views that one process holds of one block (of the rows and fields that one put wrote).

    Attributes:
        owner: the process's number in the session; never used again.
        pid, command: for people. ``command`` is its command line (a Ray worker's says which actor it is), empty when
            there is no such process any more.
        alive: whether the process lives; what a dead one held is given back by the next call that cleans up.
        partition: as it was called, also when it was cleared since.
        block: which one; two leases on the same block have the same number.
        rows, fields: of the block. A view of one row holds all of it.
        nbytes: what the block takes of the store.
        live_bytes: the share of it that rows still name. 0: nothing but views keeps it.
        retired: its rows were all cleared, overwritten or moved: its space comes back when the last view dies.
        views: reads that are still held; one read's tensors of one block are one.
        age_s: seconds since the oldest of them was made; a forked child's count from when its parent made them.
    """

    owner: int
    pid: int
    command: str
    alive: bool
    partition: str
    block: int
    rows: int
    fields: int
    nbytes: int
    live_bytes: int
    retired: bool
    views: int
    age_s: float

    @property
    def pinned_bytes(self) -> int:
        """What views alone keep from being used again."""
        return self.nbytes if self.retired else 0


def list_leases(store: Store, partition_id: str | None = None) -> list[LeaseStats]:
    """The leases of all processes, oldest first. What is read, and dropped, at this very moment may be missing."""
    found = []
    commands: dict[int, str] = {}
    for facts in store.leases():
        if partition_id is not None and facts["partition"] != partition_id:
            continue
        owner, pid, started_s = facts["owner"], facts["pid"], facts.pop("start_time_s")
        if owner not in commands:
            commands[owner] = command_of(pid, started_s) if facts["alive"] else ""
        found.append(LeaseStats(command=commands[owner], **facts))
    return sorted(found, key=lambda lease: -lease.age_s)


def command_of(pid: int, started_s: float) -> str:
    """The command line of the process with that pid that was started so long after boot; empty when there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The command stands in parentheses and may hold some itself.
            fields = file.read().rpartition(b")")[2].split()
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read(4096).split(b"\0")
    except OSError:
        return ""
    ticks = int(fields[_START_TIME_FIELD - 3])
    if abs(started_s * os.sysconf("SC_CLK_TCK") - ticks) > 1:
        return ""  # the pid is somebody else's by now
    return " ".join(b" ".join(words).decode(errors="replace").split())


def totals(leases: Iterable[LeaseStats]) -> dict[str, int]:
    """processes, blocks, nbytes and pinned_bytes; a block that several hold counts once."""
    listed = list(leases)
    blocks = {lease.block: lease for lease in listed}
    return {
        "processes": len({lease.owner for lease in listed}),
        "blocks": len(blocks),
        "nbytes": sum(lease.nbytes for lease in blocks.values()),
        "pinned_bytes": sum(lease.pinned_bytes for lease in blocks.values()),
    }


def to_plain(session: str, leases: Sequence[LeaseStats]) -> dict[str, Any]:
    """For JSON."""
    listed = [{**dataclasses.asdict(lease), "pinned_bytes": lease.pinned_bytes} for lease in leases]
    return {"session": session, **totals(leases), "leases": listed}


HEADER = ("pid", "command", "partition", "block", "rows", "fields", "bytes", "of no row", "views", "for")


def as_row(lease: LeaseStats) -> list[str]:
    """One line of the table, under `HEADER`."""
    command = lease.command if lease.alive else "(dead)"
    return [
        str(lease.pid),
        command if len(command) <= _COMMAND_LIMIT else command[: _COMMAND_LIMIT - 3] + "...",
        lease.partition,
        f"{lease.block:x}",
        str(lease.rows),
        str(lease.fields),
        format_size(lease.nbytes),
        _of_no_row(lease),
        str(lease.views),
        f"{lease.age_s:.1f} s",
    ]


def _of_no_row(lease: LeaseStats) -> str:
    if lease.retired:
        return "all"
    return format_size(lease.nbytes - lease.live_bytes) if lease.live_bytes < lease.nbytes else ""


def summary(leases: Sequence[LeaseStats], partition_id: str | None = None) -> str:
    """One sentence about all of them, which are those of `partition_id` where it says so."""
    if not leases:
        return "nobody holds a view" + (f" of partition {partition_id!r}" if partition_id is not None else "")
    found = totals(leases)
    pinned = format_size(found["pinned_bytes"])
    return (
        f"{counted(found['processes'], 'process', 'processes')} with views of "
        f"{counted(found['blocks'], 'block')}: {format_size(found['nbytes'])}; {pinned} of it in blocks "
        "without rows, which come back when the views die"
    )
