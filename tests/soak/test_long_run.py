"""Weeks of training, shortened: nothing grows, and no byte is wrong, when 90 % of the rows go in any order."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from tests.race.paused import settled
from tests.soak.long_run import KEPT_STEPS, SIZE, TOLERANCES, LongRun
from tests.support.nursery import Nursery
from tests.support.sessions import embedded

SAMPLES = 60
# Of the steps of `test_hours`, seconds from one to the next. How much lies in the store uncompacted goes by how many
# steps fall between two looks of the compactor: at the machine's own pace, a third with less load beside it looks like
# growth (8.5 and 15 MiB in one run).
PACE_S = 0.3


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as found:
        yield found


def run(nursery: Nursery, *, steps: int = 0, seconds: float = 0.0, pace_s: float = 0.0, short: bool = False) -> None:
    """So many steps, or so many seconds of them. `short`: rows go sooner, only some must be flat."""
    with embedded(**{"storage.size": SIZE}) as session:
        long_run = LongRun(session, nursery, kept_steps=4 if short else KEPT_STEPS)
        until_s = time.monotonic() + seconds
        sampled = 0.0
        while long_run.steps < steps or time.monotonic() < until_s:
            began_s = time.monotonic()
            long_run.step()
            done = long_run.steps / steps if steps else 1 - (until_s - time.monotonic()) / seconds
            if done * SAMPLES >= sampled or (seconds and seconds < SAMPLES):
                long_run.sample()
                sampled += 1
            time.sleep(max(0.0, began_s + pace_s - time.monotonic()))
        report = long_run.report()
        print(f"\n{report}")
        if path := os.environ.get("TQ_LONG_RUN_REPORT"):
            with open(path, "w", encoding="utf-8") as file:
                print(report, file=file)
        assert short or session.client._store.counts()["compacted_bytes"] > 0
        session.client._store.check()
        long_run.end()
        # Without a service of 8 processes' worth of views: all of it comes back.
        for partition in session.client.get_partition_list():
            session.client.clear_partition(partition)
        settled(session.client)
        assert session.client.stats().used_bytes == 0
        assert not pace_s or long_run.fragmented == []
        assert long_run.growing(("fds", "maps") if short else TOLERANCES) == [], report


@pytest.mark.timeout(120)
def test_a_short_run(nursery: Nursery) -> None:
    """Every byte is right, descriptors and mappings are flat, and at the end all of it comes back."""
    run(nursery, steps=6, seconds=3, short=True)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_thousand_steps(nursery: Nursery) -> None:
    run(nursery, steps=1000)


@pytest.mark.soak
@pytest.mark.timeout(9000)
@pytest.mark.skipif("TQ_LONG_RUN_HOURS" not in os.environ, reason="make soak-hours, or TQ_LONG_RUN_HOURS=2 make soak")
def test_hours(nursery: Nursery) -> None:
    run(nursery, seconds=3600 * float(os.environ["TQ_LONG_RUN_HOURS"]), pace_s=PACE_S)
