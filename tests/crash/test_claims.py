"""Claims whose process dies, stops or hands them on: their rows come back, and what it says too late is refused."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

import transferqueue as tq
from tests.crash import claim_victims as victims
from tests.crash.world import World
from transferqueue import TransferQueueClient

pytestmark = pytest.mark.timeout(120)
EARLY = ["write_gate.entered", "index.before_commit"]
LATE = ["index.after_commit"]


@pytest.fixture
def rows(world: World) -> Iterator[list[int]]:
    """Global indexes of eight rows."""
    world.empty()
    yield world.put_plain(range(8)).global_indexes
    world.settle()


def claim(client: TransferQueueClient, count: int, **options: Any) -> tq.Claim:
    return victims.claim_rows(client, count, **options)


def consumed(client: TransferQueueClient) -> list[int]:
    _, marks = client.get_consumption_status("t", "plain")
    assert marks is not None
    return list(marks.tolist())


def refused(client: TransferQueueClient, claimed: tq.Claim, why: str) -> None:
    with pytest.raises(tq.StaleMetadataError, match=why):
        client.ack(claimed)


@pytest.mark.parametrize("point", [*EARLY, "index.claim.before_commit", *LATE])
def test_one_that_dies_claiming_keeps_nothing(world: World, rows: list[int], point: str) -> None:
    world.die(point, victims.die_claiming, 4)
    # Before any housekeeping: whoever looks next sees that it is dead.
    claimed = claim(world.client, 8)
    assert claimed.meta.global_indexes == rows
    world.client.ack(claimed)
    assert consumed(world.client) == [1] * 8


def test_one_that_dies_with_a_claim_keeps_nothing(world: World, rows: list[int]) -> None:
    world.die("index.before_commit", victims.die_with_a_claim, 4)
    assert world.client.get_meta("x", 8, "plain", task_name="t", timeout=0).global_indexes == rows


@pytest.mark.parametrize("point", [*EARLY, "index.finish_claim.before_commit", *LATE, "claim.before_wake"])
@pytest.mark.parametrize("deed", [victims.die_at_ack, victims.die_at_nack], ids=["ack", "nack"])
def test_one_that_dies_ending_a_claim_ends_it_or_not(world: World, rows: list[int], point: str, deed: Any) -> None:
    claimed = claim(world.client, 8)
    world.die(point, deed, claimed)
    if point in (*LATE, "claim.before_wake"):
        refused(world.client, claimed, "acknowledged or given back")
        acknowledged = deed is victims.die_at_ack
        assert consumed(world.client) == [int(acknowledged)] * 8
        assert bool(claim(world.client, 8)) is not acknowledged
    else:
        assert not claim(world.client, 1)
        world.client.ack(claimed)
        assert consumed(world.client) == [1] * 8
    assert len(rows) == 8


@pytest.mark.parametrize("point", [*EARLY, *LATE])
def test_one_that_dies_extending_takes_the_claim_with_it_or_not(world: World, rows: list[int], point: str) -> None:
    claimed = claim(world.client, 8)
    world.die(point, victims.die_extending, claimed)
    if point in LATE:
        refused(world.client, claimed, "the process that claimed it is gone")
        assert claim(world.client, 8).meta.global_indexes == rows
    else:
        world.client.ack(claimed)


def test_the_wake_that_never_came(world: World, rows: list[int]) -> None:
    """Killed between the commit of a nack and its wake-up."""
    claimed = claim(world.client, 8)
    waiter = world.nursery.start(victims.wait_for_rows, world.session.name, 8)
    assert waiter.receive() == "waiting"
    time.sleep(0.2)  # it sleeps by now; if not, it finds the rows at once
    world.die("claim.before_wake", victims.die_at_nack, claimed)
    assert waiter.receive() == rows
    assert waiter.receive() == "acknowledged"
    assert waiter.wait() == 0


def test_a_waiter_notices_a_death_without_any_service(world: World, rows: list[int]) -> None:
    holder = world.nursery.start(victims.claim_and_tell, world.session.name, 8, victims.LEASE_S)
    holder.receive()
    waiter = world.nursery.start(victims.wait_for_rows, world.session.name, 1)
    assert waiter.receive() == "waiting"
    holder.kill()
    assert waiter.receive() == rows[:1]
    assert waiter.receive() == "acknowledged"
    assert [holder.wait(), waiter.wait()] == [-signal.SIGKILL, 0]


def test_a_stopped_consumer_is_late(world: World, rows: list[int]) -> None:
    """It is alive and says nothing: its rows come back when its lease runs out, and what it says then is refused."""
    slow = world.nursery.start(victims.claim_and_tell, world.session.name, 8, 0.5)
    slow.receive()
    slow.kill(signal.SIGSTOP)
    claimed = claim(world.client, 8, timeout=60)
    assert claimed.meta.global_indexes == rows
    slow.kill(signal.SIGCONT)
    for word in ("ack", "nack"):
        slow.pipe.send(word)
        assert re.search(r"claim \d+ of task 't' on partition 'plain' is over", slow.receive())
    world.client.ack(claimed)
    assert consumed(world.client) == [1] * 8
    slow.kill()
    slow.wait()


def test_another_process_may_end_a_claim(world: World, rows: list[int]) -> None:
    for call, again in (("nack", True), ("ack", False)):
        claimed = claim(world.client, 8)
        other = world.nursery.start(victims.finish, world.session.name, claimed, [call])
        assert other.receive() == "done"
        assert other.wait() == 0
        refused(world.client, claimed, "acknowledged or given back")
        assert bool(claim(world.client, 1, lease_s=1e-9)) is again
    assert consumed(world.client) == [1] * len(rows)


def test_a_claim_belongs_to_who_made_it_until_somebody_extends_it(world: World, rows: list[int]) -> None:
    for extended in (False, True):
        holder = world.nursery.start(victims.claim_and_tell, world.session.name, 4, victims.LEASE_S)
        claimed = holder.receive()
        assert claimed.meta.global_indexes == rows[:4]
        if extended:
            world.client.extend(claimed, victims.LEASE_S)
        holder.kill()
        holder.wait()
        if extended:
            assert claim(world.client, 8, partial=True).meta.global_indexes == rows[4:]
            world.client.ack(claimed)
        else:
            refused(world.client, claimed, "the process that claimed it is gone")


def test_a_child_closes_the_session_and_its_parent_keeps_its_claims(world: World, rows: list[int]) -> None:
    parent = world.nursery.start(victims.fork_with_claims, world.session.name)
    assert [parent.receive() for _ in range(3)] == [0, False, "acknowledged"]
    assert parent.wait() == 0
    assert consumed(world.client) == [1] * 4 + [0] * 4
    assert claim(world.client, 4).meta.global_indexes == rows[4:]


def test_a_process_that_leaves_gives_its_claims_back(world: World, rows: list[int]) -> None:
    """And one that ends without a word, after extending another's."""
    claimed = claim(world.client, 8)
    other = world.nursery.start(victims.finish, world.session.name, claimed, ["extend"])
    assert other.receive() == "done"
    assert other.wait() == 0
    refused(world.client, claimed, "the process that claimed it is gone")
    assert claim(world.client, 8).meta.global_indexes == rows
