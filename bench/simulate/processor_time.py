"""Processor time of another process, found by the port that it listens on."""

from __future__ import annotations

import os
from pathlib import Path

_LISTENS = "0A"


def listener_of(port: int) -> int:
    """The pid of the process that listens on a TCP port of this machine.

    Raises:
        LookupError: none that this user may look at.
    """
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == _LISTENS and int(words[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{words[9]}]")
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            if any(os.readlink(link) in inodes for link in Path(f"/proc/{entry}/fd").iterdir()):
                return int(entry)
        except OSError:
            continue  # it ended, or belongs to another user
    raise LookupError(f"no process listens on port {port}")


def processor_s(pid: int) -> float:
    """User and system time of all its threads so far, to the clock tick (10 ms mostly)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
