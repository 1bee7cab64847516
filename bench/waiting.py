"""Claim: a waiter in another process is woken p50 <= 0.1 ms and p99 <= 2 ms after a put; 64 idle waiters use under 1 %
of a core together.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from typing import Any

import torch
from tensordict import TensorDict

import transferqueue as tq
from bench.crew import Member, crew, quantile
from bench.ours import PARTITION, SYSTEM, session
from bench.report import main
from bench.timing import Measured

IDLE_WAITERS = 64
IDLE_S = 4.0
SETTLED_S = 0.003  # from one wake-up to the next put: long enough for the waiter to sleep


class Waiter(Member):
    """Waits for keys one after another."""

    def __init__(self, session: str, number: int) -> None:
        super().__init__(session)
        self._threads: list[threading.Thread] = []
        self._used_s = 0.0

    def threads(self, keys: list[str]) -> list[float]:
        """Monotonic time of the return of each wait, in a plain thread."""
        returned = []
        for key in keys:
            self.client.wait(PARTITION, fields="x", keys=[key], timeout=60.0)
            returned.append(time.monotonic())
        return returned

    def tasks(self, keys: list[str]) -> list[float]:
        """The same in a task of an event loop."""

        async def wait_for_all() -> list[float]:
            returned = []
            for key in keys:
                await self.client.async_wait(PARTITION, fields="x", keys=[key], timeout=60.0)
                returned.append(time.monotonic())
            return returned

        return asyncio.run(wait_for_all())

    def begin_idle(self, waiters: int, face: str) -> None:
        """`waiters` that wait for a key that comes at the end; returns at once."""
        wait: Any = {"fields": "x", "keys": ["end"], "timeout": 120.0}
        if face == "threads":
            work = [lambda: self.client.wait(PARTITION, **wait)] * waiters
        else:

            async def all_of_them() -> None:
                await asyncio.gather(*(self.client.async_wait(PARTITION, **wait) for _ in range(waiters)))

            work = [lambda: asyncio.run(all_of_them())]
        self._threads = [threading.Thread(target=call) for call in work]
        for thread in self._threads:
            thread.start()

    def cpu_s(self) -> float:
        return time.process_time()  # os.times() counts in ticks of 10 ms

    def end_idle(self) -> None:
        for thread in self._threads:
            thread.join(60)


def wake_up(rows: int, rounds: int) -> list[Measured]:
    """From the put's return to the wait's return; a waiter that is back before the put returned counts as 0."""
    row = TensorDict({"x": torch.zeros(1, 4)}, batch_size=[1])
    found = []
    count = rounds * 100
    with session() as opened, crew(1, Waiter, opened.name) as waiters:
        client = tq.get_client()
        for face in ("threads", "tasks"):
            keys = [f"{face}-{index}" for index in range(count)]
            client.kv_batch_put(["before"], PARTITION, row)
            waiters.members[0].start(face, keys)
            time.sleep(0.3)
            began, done = [], []
            for key in keys:
                time.sleep(SETTLED_S)
                began.append(time.monotonic())
                client.kv_batch_put([key], PARTITION, row)
                done.append(time.monotonic())
            woken = waiters.members[0].finish()
            late = [max(0.0, there - put) for there, put in zip(woken, done, strict=True)][20:]
            whole = [there - put for there, put in zip(woken, began, strict=True)][20:]
            measured = Measured(f"wake_up_{face}", SYSTEM, get_s=late)
            measured.facts = {
                f"wake_up_{face}_p50_ms": quantile(late, 0.5) * 1e3,
                f"wake_up_{face}_p99_ms": quantile(late, 0.99) * 1e3,
                f"wake_up_{face}_from_put_call_p50_ms": quantile(whole, 0.5) * 1e3,
            }
            found.append(measured)
            client.clear_partition(PARTITION)
    return found


def idle(rows: int, rounds: int) -> list[Measured]:
    """CPU seconds a second that 64 idle waiters use: as processes, as threads of one process, as tasks of one loop.

    A process that waits uses nothing else, but attaching starts the housekeeping of one of them: the same processes
    without waiters are measured first and taken off.
    """
    row = TensorDict({"x": torch.zeros(1, 4)}, batch_size=[1])
    found = []
    for face, processes, name in (
        ("threads", IDLE_WAITERS, "processes"),
        ("threads", 1, "threads"),
        ("tasks", 1, "tasks"),
    ):
        with session() as opened, crew(processes, Waiter, opened.name) as waiters:

            def used_s(waiters: Any = waiters) -> float:
                return float(sum(member.call("cpu_s") for member in waiters.members))

            def share(used_s: Any = used_s) -> float:
                before_s, began = used_s(), time.monotonic()
                time.sleep(IDLE_S)
                took_s = time.monotonic() - began
                return float((used_s() - before_s) / took_s)

            tq.get_client().kv_batch_put(["before"], PARTITION, row)
            time.sleep(0.5)
            without = share()
            for member in waiters.members:
                member.call("begin_idle", IDLE_WAITERS // processes, face)
            time.sleep(0.5)
            with_waiters = share()
            tq.get_client().kv_batch_put(["end"], PARTITION, row)
            for member in waiters.members:
                member.call("end_idle")
            measured = Measured(f"idle_waiters_{name}", SYSTEM)
            measured.facts[f"idle_{IDLE_WAITERS}_{name}_percent_of_a_core"] = max(0.0, with_waiters - without) * 100
            measured.facts[f"idle_{IDLE_WAITERS}_{name}_without_waiters_percent"] = without * 100
            found.append(measured)
    return found


if __name__ == "__main__":
    sys.exit(main({"wake_up": wake_up, "idle": idle}))
