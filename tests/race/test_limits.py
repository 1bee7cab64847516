"""Limits of a partition with many producers, with deaths, and against a model."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from tensordict import TensorDict

import transferqueue as tq
from tests.race.limit_model import LimitModel
from tests.support.nursery import Nursery
from transferqueue import TransferQueueClient, _native

COMMON = {"deadline": None, "suppress_health_check": list(HealthCheck), "database": None}
ROWS, NBYTES, LAG = 48, 96 << 10, 3


def run(client: TransferQueueClient, examples: int, steps: int) -> None:
    class Model(LimitModel):
        pass

    Model.client = client
    chosen = settings(max_examples=examples, stateful_step_count=steps, **COMMON)  # type: ignore[arg-type]
    run_state_machine_as_test(Model, settings=chosen)  # type: ignore[no-untyped-call]
    client.clear_partition("limited")
    client.set_limits("limited", max_unconsumed_rows=None, max_version_lag=None)


@pytest.mark.timeout(120)
def test_limits_and_model_agree(client: TransferQueueClient) -> None:
    run(client, 40, 50)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_limits_and_model_agree_for_long(client: TransferQueueClient) -> None:
    run(client, 2000, 60)


def batch(rows: int) -> TensorDict:
    return TensorDict({"x": torch.zeros(rows, 256)}, [rows])


def produce(pipe: Connection, session: str, seed: int, seconds: float) -> None:
    """Puts of every kind and size until the time is over; then says how many rows it put and how many went for it."""
    tq.init(session=session)
    client = tq.get_client()
    random.seed(seed)
    until_s = time.monotonic() + seconds
    put = shed = number = 0
    while time.monotonic() < until_s:
        rows = random.randint(1, 12)
        tags = [{"weight_version": int((time.monotonic() - until_s + seconds) * 8)}] * rows
        number += 1
        made: tq.BatchMeta | tq.KVBatchMeta
        try:
            if number % 3 == 0:
                made = client.kv_batch_put(
                    [f"{seed}.{number}.{i}" for i in range(rows)], "p", batch(rows), tags, timeout=0.2
                )
            elif number % 3 == 1:
                made = client.put(batch(rows), partition_id="p", tags=tags, timeout=0.2)
            else:
                allocation = client.alloc(
                    {"x": ((256,), torch.float32)}, partition_id="p", batch_size=rows, timeout=0.2
                )
                allocation.data["x"].zero_()
                made = allocation.commit(tags=tags)
        except tq.LimitExceededError:
            continue
        put += made.size
        shed += made.shed_rows if made.size else 0
    pipe.send((put, shed))
    tq.close()


def consume(pipe: Connection, session: str, seconds: float, acknowledging: bool) -> None:
    """Takes rows and clears most of them, until the time is over; then says how many it cleared."""
    tq.init(session=session)
    client = tq.get_client()
    until_s = time.monotonic() + seconds
    cleared = 0
    while time.monotonic() < until_s:
        if acknowledging:
            claim = client.claim("train", "p", fields="x", batch_size=8, lease_s=30.0)
            meta = claim.meta
            if meta.size:
                client.ack(claim)
        else:
            meta = client.get_meta("x", 8, "p", task_name="train", partial=True, polling_mode=True)
        if not meta.size:
            time.sleep(0.002)
            continue
        client.clear_samples(meta)
        cleared += meta.size
    pipe.send(cleared)
    tq.close()


def race(client: TransferQueueClient, nursery: Nursery, way: str, seconds: float, kills: int) -> None:
    client.set_limits(
        "p",
        max_bytes=NBYTES,
        max_unconsumed_rows=ROWS,
        max_version_lag=LAG if way == "shed" else None,
        when_exceeded=way,
    )
    name = client.session
    client.get_meta("x", 1, "p", mode="insert")
    client.clear_samples(client.get_meta("x", 0, "p", mode="force_fetch"))
    producers = [nursery.start(produce, name, seed, seconds) for seed in range(4)]
    consumers = [nursery.start(consume, name, seconds, acknowledging) for acknowledging in (False, True)]
    doomed = [nursery.start(produce, name, 100 + number, seconds) for number in range(kills)]
    random.seed(7)
    until_s = time.monotonic() + seconds
    looks = most = 0
    while time.monotonic() < until_s:
        held = client.get_limits("p")
        assert held.live_bytes <= NBYTES
        assert held.unconsumed_rows is not None
        assert held.unconsumed_rows <= ROWS
        if held.max_version_lag is not None and held.oldest_version is not None:
            assert held.newest_version is not None
            assert held.newest_version - held.oldest_version <= LAG
        looks, most = looks + 1, max(most, held.unconsumed_rows)
        if looks % 20 == 0:
            client._store.check()
        if doomed and random.random() < 0.01:
            child = doomed.pop()
            child.kill()
            assert child.wait() == -signal.SIGKILL
    for child in doomed:
        child.kill()
        child.wait()
    answers = [child.receive() for child in producers]
    cleared = sum(child.receive() for child in consumers)
    assert [child.wait() for child in producers + consumers] == [0] * 6
    client._store.check()
    assert looks > 20
    assert most > ROWS // 2
    if not kills:
        left = client.stats("p").rows["total"]
        assert sum(put for put, _ in answers) == cleared + left + sum(shed for _, shed in answers)
    client.clear_partition("p")
    client.set_limits("p", max_bytes=None, max_unconsumed_rows=None, max_version_lag=None)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("way", "kills"), [("wait", 0), ("shed", 0), ("raise", 3)])
def test_producers_together_never_exceed_the_limits(
    client: TransferQueueClient, nursery: Nursery, way: str, kills: int
) -> None:
    race(client, nursery, way, 1.5, kills)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("way", ["wait", "shed", "raise"])
@pytest.mark.parametrize("kills", [0, 12])
def test_producers_together_never_exceed_the_limits_for_long(
    client: TransferQueueClient, nursery: Nursery, way: str, kills: int
) -> None:
    race(client, nursery, way, 60.0, kills)


# -- deaths inside the transactions that keep the accounts -----------------------------------------------------------


def die(pipe: Connection, session: str, point: str, deed: str) -> None:
    tq.init(session=session)
    client = tq.get_client()
    client.get_limits("dying")
    name, _, after = point.partition(":")
    claim = client.claim("train", "dying", fields="x", batch_size=2, lease_s=30.0) if deed == "ack" else None
    _native.arm_pause(name, "kill", after=int(after or 0))
    DEEDS[deed](client, claim)


DEEDS: dict[str, Callable[[TransferQueueClient, tq.Claim | None], object]] = {
    "put": lambda client, _: client.kv_batch_put(["n1", "n2"], "dying", batch(2), [{"weight_version": 2}] * 2),
    "fetch": lambda client, _: client.get_meta("x", 2, "dying", task_name="train"),
    "ack": lambda client, claim: client.ack(claim),
    "clear": lambda client, _: client.kv_clear(["k0", "k1"], "dying"),
    "reset": lambda client, _: client.reset_consumption("dying"),
    "limits": lambda client, _: client.set_limits("dying", consumers=("other",)),
    "version": lambda client, _: client.set_weight_version("dying", 2),
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("deed", DEEDS)
def test_the_accounts_are_right_after_a_death(client: TransferQueueClient, nursery: Nursery, deed: str) -> None:
    """All of it or nothing, on either side of the commit, with as many rows as the limit allows."""
    points = ["index.before_commit", "index.after_commit"]
    if deed == "put":
        points = ["index.publish.before_commit", "index.publish.after_commit", *points]
    for point in points:
        client.set_limits("dying", max_unconsumed_rows=6, max_version_lag=1, consumers=(), when_exceeded="shed")
        client.kv_batch_put([f"k{i}" for i in range(6)], "dying", batch(6), [{"weight_version": 1}] * 6)
        before = client.get_limits("dying")
        assert nursery.run(die, client.session, point, deed) == -signal.SIGKILL
        client._store.reap()
        client._store.check()
        after = client.get_limits("dying")
        assert after.unconsumed_rows is not None
        assert after.unconsumed_rows <= 6
        if deed == "put":
            there = set(client.kv_list("dying")["dying"])
            assert there in ({f"k{i}" for i in range(6)}, {"k2", "k3", "k4", "k5", "n1", "n2"})
            assert after.shed_rows == (2 if "n1" in there else 0)
        elif deed != "ack" and "before" in point:
            assert after == before
        client.clear_partition("dying")
    client.set_limits("dying", max_unconsumed_rows=None, max_version_lag=None)
