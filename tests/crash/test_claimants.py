"""Consumers that are killed at any moment, with a service and with producers at work: no two work on one row at a time,
what was acknowledged is not delivered again, and nothing is left out."""

from __future__ import annotations

import ast
import random
import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from tensordict import TensorDict

from tests.crash import claim_victims as victims
from tests.support.nursery import Child, Nursery
from tests.support.sessions import embedded

pytestmark = pytest.mark.timeout(120)


def test_the_service_wakes_who_waits_for_rows_of_the_dead(nursery: Nursery) -> None:
    with embedded() as session:
        client = session.client
        rows = client.put(TensorDict({"x": torch.arange(4)}, [4]), partition_id="plain").global_indexes
        holder = nursery.start(victims.claim_and_tell, session.name, 4, victims.LEASE_S)
        holder.receive()
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(lambda: victims.claim_rows(client, 4, timeout=60))
            time.sleep(0.2)
            assert not waiting.done()
            holder.kill()
            assert waiting.result().meta.global_indexes == rows
        holder.wait()


def start_consumer(nursery: Nursery, session: str, folder: Path, count: int, seed: int) -> Child:
    child = nursery.start(victims.consume_until_told, session, str(folder), count, seed)
    assert child.receive() == "ready"
    return child


def consume_with_deaths(nursery: Nursery, folder: Path, count: int, deaths: int, seed: int) -> None:
    chooser = random.Random(seed)
    with embedded() as session:
        client = session.client
        victims.Holders(folder / "holders", count)
        seeds = iter(range(1000 * seed, 1000 * seed + 1000))
        running = [start_consumer(nursery, session.name, folder, count, next(seeds)) for _ in range(4)]
        killed = put = 0
        while put < count or killed < deaths:
            if put < count:
                some = min(chooser.randint(1, 6), count - put)
                client.put(TensorDict({"x": torch.arange(put, put + some).unsqueeze(1)}, [some]), partition_id="plain")
                put += some
            time.sleep(0.01)
            if killed < deaths and put * deaths >= killed * count:
                at = chooser.randrange(len(running))
                running[at].kill()
                assert running[at].wait() == -signal.SIGKILL
                running[at] = start_consumer(nursery, session.name, folder, count, next(seeds))
                killed += 1
        for child in running:
            child.pipe.send("end")
        for child in running:
            assert child.receive() == "nothing left"
            assert child.wait() == 0
        assert client.check_consumption_status("t", "plain")
    done = [number for line in (folder / "log").read_text().splitlines() for number in ast.literal_eval(line)]
    twice = {number: times for number, times in Counter(done).items() if times > 1}
    assert not twice, f"acknowledged or fetched twice: {twice}"
    # One that is killed between its commit and its note leaves the rows of one call without a note.
    assert count - len(done) <= 4 * killed, (count, len(done), killed)


def test_consumers_that_are_killed_share_every_row(nursery: Nursery, tmp_path: Path) -> None:
    consume_with_deaths(nursery, tmp_path, 300, 12, 1)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(2, 7))
def test_many_consumers_that_are_killed_share_every_row(nursery: Nursery, tmp_path: Path, seed: int) -> None:
    consume_with_deaths(nursery, tmp_path, 3000, 200, seed)
