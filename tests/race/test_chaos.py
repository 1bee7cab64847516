"""Writers, readers, clearers, coalescers, housekeepers and forking processes on one small store, killed at any time."""

from __future__ import annotations

import os
import random
import time

import pytest

import transferqueue as tq
from tests.race import chaos_roles
from tests.race.paused import settled
from tests.support.nursery import Child, Nursery
from tests.support.sessions import embedded

CAST = ["write", "write", "read", "read", "clear", "coalesce", "keep_house", "fork"]


def chaos(nursery: Nursery, seed: int, duration_s: float) -> None:
    chooser = random.Random(seed)
    with embedded(**{"storage.size": "8MiB"}) as session:
        until_s = time.monotonic() + duration_s
        playing: list[tuple[str, Child]] = []
        deaths = 0

        def cast(name: str) -> None:
            dies = chooser.random() < 0.5
            child = nursery.start(chaos_roles.play, session.name, name, chooser.getrandbits(32), dies)
            playing.append((name, child))

        for name in CAST:
            cast(name)
        while time.monotonic() < until_s or deaths <= duration_s / 2:
            time.sleep(0.05)
            for at in reversed(range(len(playing))):
                name, child = playing[at]
                if chooser.random() < 0.08:
                    child.kill()
                elif _runs(child.pid):
                    continue
                status = child.wait()
                assert status == -9, f"{name} ended with {status} (seed {seed})"
                deaths += 1
                playing.pop(at)
                cast(name)
        turns: dict[str, int] = {}
        for name, child in playing:
            try:
                child.pipe.send("stop")
                turns[name] = turns.get(name, 0) + child.receive()
            except (EOFError, BrokenPipeError, ConnectionResetError):
                assert child.wait() == -9, f"{name} (seed {seed})"
                continue
            assert child.wait() == 0, f"{name} (seed {seed})"
        assert sum(turns.values()) > 0
        look_at_everything(session)


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def look_at_everything(session: tq.Session) -> None:
    """Each group is there whole or not at all; nothing of the dead is left; emptied, the store is as large as ever."""
    client = session.client
    settled(client)
    client._store.check()
    chaos_roles.final_look(client, range(chaos_roles.GROUPS))
    settled(client)
    assert [entry.pid for entry in client.stats().clients] == [os.getpid()]
    assert len(os.listdir(f"{session.attachment.paths.directory}/leases")) == 1
    client.clear_partition("p")
    settled(client)
    stats = client.stats()
    assert (stats.used_bytes, stats.live_bytes, stats.rows["total"]) == (0, 0, 0)
    client._store.reserve(stats.total_bytes, 0).abandon()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", [1])
def test_chaos(nursery: Nursery, seed: int) -> None:
    chaos(nursery, seed, 5.0)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(100, 110))
def test_chaos_for_a_minute(nursery: Nursery, seed: int) -> None:
    chaos(nursery, seed, 60.0)
