"""Producers, readers, waiters, claimants, services, a saver, joiners and cleaners on one session, killed at random
times and at named points, stopped, half of them at once, all but one at once: no committed row is lost, torn or wrong,
nothing leaks, no lock stays held, nobody hangs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import transferqueue as tq
from tests.crash.kill_soak import KillSoak
from tests.crash.ledger import GROUPS, PRODUCERS, Ledger
from tests.support.nursery import Nursery
from tests.support.sessions import embedded, left_behind
from transferqueue.storage.names import new_session_name


def soak(nursery: Nursery, folder: Path, seed: int, rounds: int, whole_every: int) -> None:
    name = new_session_name()
    session = tq.init(session=name, **{"storage.size": "32MiB", "storage.index_size": "4MiB"})
    try:
        session.service.stop()
        session.service._next_look_s = 0.0
        print(f"seed {seed}:", KillSoak(nursery, session, folder, seed).run(rounds, whole_every))
    finally:
        tq.close()
    assert left_behind(name) == []
    look_at_the_checkpoint(folder)


def look_at_the_checkpoint(folder: Path) -> None:
    """The last one that was finished holds whole groups."""
    if not (folder / "checkpoint").exists():
        return
    with embedded() as session:
        session.client.load_checkpoint(folder / "checkpoint")
        ledger = Ledger(str(folder))
        for producer in range(PRODUCERS):
            for group in range(GROUPS):
                keys = [f"k{number}" for number in range(group * 4, group * 4 + 4)]
                listed = session.client.kv_list().get(f"p{producer}", {})
                if keys[0] in listed:
                    ledger.check(producer, group, 0, session.client.kv_batch_get(keys, f"p{producer}"))


@pytest.mark.timeout(120)
def test_kills_under_load(nursery: Nursery, tmp_path: Path) -> None:
    soak(nursery, tmp_path, 1, 8, 4)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", [int(seed) for seed in os.environ.get("KILL_SEEDS", "11 12 13 14").split()])
def test_2000_rounds_of_kills_under_load(nursery: Nursery, tmp_path: Path, seed: int) -> None:
    """500 rounds a seed."""
    soak(nursery, tmp_path, seed, 500, 10)
