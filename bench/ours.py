"""Our side of every measurement: a session in this process and readers that attach to it in processes of their own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import transferqueue as tq
from bench.consumer import Consumer
from bench.goals import SYSTEM as SYSTEM
from transferqueue.microbench.measures import settle as settle
from transferqueue.microbench.reader import Reader as PackageReader

PARTITION = "bench"


class Reader(PackageReader):
    """The package's reader, and what only these benchmarks ask."""

    def get_until(self, meta: tq.BatchMeta) -> float:
        """Wall-clock time at which the TensorDict was there."""
        self.get(meta)
        return time.time()

    def pss_bytes(self) -> int:
        return shared_pss_bytes()


def shared_pss_bytes() -> int:
    """Proportional share of the payload that this process has mapped (smaps of the .dat segments of live sessions)."""
    total, inside = 0, False
    with open("/proc/self/smaps", encoding="ascii", errors="replace") as smaps:
        for line in smaps:
            if "-" in line.split(" ", 1)[0]:
                inside = "/dev/shm/tq-" in line and line.rstrip().endswith(".dat")  # else "(deleted)": an ended one
            elif inside and line.startswith("Pss:"):
                total += int(line.split()[1]) * 1024
    return total


@contextmanager
def session(size: str = "4GiB") -> Iterator[tq.Session]:
    opened = tq.init(session=f"bench-{time.time_ns()}", **{"storage.size": size})
    try:
        yield opened
    finally:
        tq.close()


@contextmanager
def readers(session_name: str, count: int = 1) -> Iterator[list[Consumer]]:
    opened: list[Consumer] = []
    try:
        opened.extend(Consumer(Reader, session_name) for _ in range(count))
        yield opened
    finally:
        for reader in opened:
            reader.close()
