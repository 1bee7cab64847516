"""SIGSTOP, in sessions made for it: of who backs more memory, reads the index, serves or creates the session."""

from __future__ import annotations

import io
import os
import re
import signal
import time
from contextlib import redirect_stdout

import pytest
import torch
from tensordict import TensorDict

import transferqueue as tq
from tests.crash import adopters, victims
from tests.crash import frozen as help_
from tests.crash.frozen import (
    EIGHT,
    durations,
    for_seconds,
    frozen,
    held,
    is_named,
    is_stopped,
    join_and_read,
    meta_of,
    read_everything,
    write_everything,
)
from tests.crash.world import World
from tests.support.nursery import Nursery
from tests.support.quiet import without_service
from tests.support.sessions import embedded, left_behind, wait_for
from tests.support.versioned_rows import rows
from transferqueue import TransferQueueClient, cli
from transferqueue.storage.attachment import attach
from transferqueue.storage.names import SessionPaths, new_session_name

pytestmark = pytest.mark.timeout(180)


def test_the_lock_for_more_memory(nursery: Nursery) -> None:
    """Who backs more memory and stands still holds up those that need more memory, until their own deadline."""
    with embedded(**{"storage.size": "128MiB"}) as session, without_service(session):
        world = World(session, nursery)
        world.put_plain(EIGHT)
        world.put_keyed([0, 1])
        with frozen(world, "growth.locked", victims.put_large, 40 << 20) as child:
            read_everything(world)
            write_everything(world)
            with pytest.raises(tq.TransferTimeoutError) as error:
                world.client.put(
                    TensorDict({"x": torch.zeros(1, 40 << 20, dtype=torch.uint8)}, [1]), partition_id="l", timeout=1.0
                )
            is_named(error, child.pid)
        world.client.clear_partition("large")
        world.verify()
        world.settle()


def put_until_it_is_refused(client: TransferQueueClient) -> None:
    for _ in range(5000):
        client.kv_put("k", "small", {"x": torch.zeros(4)}, timeout=1.0)


@pytest.mark.parametrize("how", ["continued", "killed"])
def test_a_reader_that_stands_still_in_a_transaction(nursery: Nursery, how: str) -> None:
    """The index cannot use pages again that it sees: it fills, puts are refused by name, and reading goes on."""
    with embedded(**{"storage.index_size": "2MiB"}) as session, without_service(session):
        world = World(session, nursery)
        world.put_plain(EIGHT)
        world.put_keyed([0, 1])
        meta = meta_of(world)
        child = nursery.start(help_.freeze_at, session.name, "index.reading", victims.read, meta, "cow")
        with held(child):
            size = os.stat(session.attachment.paths.index_file).st_size
            for _ in range(2):
                with pytest.raises(tq.StorageFullError) as error:
                    put_until_it_is_refused(world.client)
                assert error.value.resource == "index"
                assert error.value.reader_pid == child.pid
                assert f"process {child.pid} (" in str(error.value)
                assert "stopped" in str(error.value)
            assert os.stat(session.attachment.paths.index_file).st_size == size
            read_everything(world)
            join_and_read(world)
            world.client.stats()
            time.sleep(1.1)
            stats = world.client.stats()
            assert stats.oldest_read_pid == child.pid
            assert stats.oldest_read_age_s >= 1
            assert stats.oldest_read_commits > 0
            with redirect_stdout(io.StringIO()) as shown:
                cli.main(["stats", "--session", session.name])
            assert re.search(rf"oldest_read_pid\s+{child.pid}\b", shown.getvalue())
            if how == "killed":
                child.kill()
                assert child.wait() == -signal.SIGKILL
        world.client.kv_put("k", "small", {"x": torch.zeros(4)}, timeout=5.0)
        write_everything(world)
        assert world.client.stats().oldest_read_pid == 0
        world.client.clear_partition("small")
        world.verify()
        world.settle()


@durations
def test_a_service_that_stands_still(nursery: Nursery, seconds: float) -> None:
    """Alive as its lock says, so nobody takes it over; nobody needs it either."""
    name = new_session_name()
    service = nursery.start(adopters.serve, name, None)
    assert service.receive().startswith("serving session")
    session = tq.init(session=name)
    try:
        world = World(session, nursery)
        world.put_plain(EIGHT)
        world.put_keyed([0, 1])
        service.kill(signal.SIGSTOP)
        wait_for(lambda: is_stopped(service.pid), what="the stop")
        session.service._next_look_s = 0.0
        for_seconds(seconds, read_everything, write_everything)(world)
        join_and_read(world)
        assert not session.service.running
        service.kill(signal.SIGCONT)
        write_everything(world)
        world.verify()
    finally:
        tq.close()
        service.kill(signal.SIGCONT)
        service.kill(signal.SIGTERM)
    assert service.wait() == 0
    assert left_behind(name) == []


def test_a_creator_that_stands_still_half_way(nursery: Nursery) -> None:
    """Who joins by that name ends at its own deadline; others make sessions of their own, and nobody removes it."""
    name = new_session_name()
    child = nursery.start(help_.freeze_joining, name, "lease_file.locked")
    with held(child):
        with pytest.raises(tq.SessionNotFoundError, match="is being made or removed by another process"):
            attach(name, made_within_s=0.5)
        assert cli.main(["clean"]) == 0
        assert os.path.isdir(SessionPaths.of(name).directory)
        with embedded() as other:
            other.client.put(rows([1], 1), partition_id="p")
