"""A view that is held while the store wraps, again and again, is unchanged."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest
import torch
from tensordict import TensorDict

import transferqueue as tq
from tests.race.paused import Call
from tests.race.wrap_holders import Holder, hold, hold_elsewhere, stored
from tests.support.nursery import Nursery
from tests.support.sessions import Forked, embedded

SIZE_MIB = 16
WRAPS = 100


@pytest.fixture
def small(nursery: Nursery) -> Iterator[tq.Session]:
    # Before this session is there: a child of the nursery knows nothing of it.
    with embedded(**{"storage.size": f"{SIZE_MIB}MiB"}) as session:
        yield session


def wrap(client: tq.TransferQueueClient, value: int) -> int:
    """Everything that is free is written over, in pieces of three sizes; bytes written."""
    written = 0
    for nbytes in (1 << 20, 100_000, 3_000):
        data = TensorDict({"x": torch.full((1, nbytes), value, dtype=torch.uint8)}, [1])
        for _ in range((SIZE_MIB << 20) // nbytes):
            try:
                client.put(data, partition_id="filler", timeout=0)
            except MemoryError:
                break
            written += nbytes
            if nbytes < 4_096 and written % 20 == 0:
                break
    client.clear_partition("filler")
    return written


@pytest.mark.parametrize(
    "hold_s",
    [
        pytest.param(0, marks=pytest.mark.timeout(300)),
        pytest.param(3600, marks=[pytest.mark.soak, pytest.mark.timeout(5000)]),
    ],
)
def test_views_held_while_the_store_wraps_100_times(small: tq.Session, nursery: Nursery, hold_s: float) -> None:
    """By this process, by two threads of it that end, by a child that inherited them while the parent dropped its own,
    and by a process that attached; the rows are overwritten or cleared at once. Soak: for an hour, too."""
    client = small.client
    metas = [client.put(stored(version), partition_id=f"held{version % 2}") for version in range(4)]
    here = Holder(client, metas[0], 0)
    of_threads = [Call(Holder, client, meta, version).result() for version, meta in enumerate(metas[:2])]
    inherited = [Holder(client, metas[2], 2)]

    def child(pipe: object) -> None:
        hold(pipe, inherited[0])  # type: ignore[arg-type]

    forked = Forked(child)
    inherited.clear()
    attached = nursery.start(hold_elsewhere, small.name, metas[3], 3)
    assert forked.hear() == "holds"
    assert attached.receive() == "holds"
    client.put(stored(9), metadata=metas[0].copy())  # overwritten
    client.clear_partition("held0")
    client.clear_partition("held1")

    began_s = time.monotonic()
    wraps, wrapped = 0, 0.0
    while wrapped < WRAPS or time.monotonic() < began_s + hold_s:
        room = client.stats().free_bytes
        wrapped += wrap(client, wraps % 251) / room
        wraps += 1
        here.look()
        if wraps % 10 == 0:
            for call in [Call(holder.look) for holder in of_threads]:
                call.result()
            forked.say("look")
            attached.pipe.send("look")
            assert forked.hear() == "right"
            assert attached.receive() == "right"
        if hold_s:
            time.sleep(min(1.0, hold_s / 1000))
    pinned = small.leases("held0") + small.leases("held1")
    assert {lease.pid for lease in pinned} == {os.getpid(), forked.pid, attached.pid}
    assert all(lease.retired and lease.age_s > 0 for lease in pinned)
    forked.say("end")
    attached.pipe.send("end")
    assert forked.join() == 0
    assert attached.wait() == 0
    here.look()
    del here, pinned
    of_threads.clear()
    client._store.reap()
    client._store.reclaim()
    assert client.stats().retired_bytes == 0
    print(f"\n{wraps} rounds, {wrapped:.0f} times the free room, in {time.monotonic() - began_s:.0f} s")
