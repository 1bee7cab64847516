"""Claims that race with everything else, and samplers that take their time."""

from __future__ import annotations

import threading

import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from tensordict import TensorDict

import transferqueue as tq
from tests.race import deeds
from tests.race.claim_model import ClaimModel
from tests.race.paused import Call, stop_elsewhere
from tests.support.nursery import Nursery
from transferqueue import TransferQueueClient

pytestmark = pytest.mark.timeout(120)


def run(client: TransferQueueClient, examples: int, steps: int) -> None:
    class Model(ClaimModel):
        pass

    Model.client = client
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    run_state_machine_as_test(Model, settings=chosen)  # type: ignore[no-untyped-call]


def test_claims_and_model_agree(client: TransferQueueClient) -> None:
    run(client, 150, 50)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_claims_and_model_agree_for_long(client: TransferQueueClient) -> None:
    run(client, 1500, 60)


def put_rows(client: TransferQueueClient, count: int, partition: str = "p") -> tq.BatchMeta:
    return client.put(TensorDict({"x": torch.arange(count)}, [count]), partition_id=partition)


def claim(client: TransferQueueClient, count: int, task: str = "t") -> tq.Claim:
    return client.claim(task, "p", fields="x", batch_size=count, lease_s=3600)


def test_one_overtaken_five_times_comes_through(client: TransferQueueClient) -> None:
    """By claims and fetches in turn; from the fourth time on it holds the task's lock, which these do not ask for."""
    put_rows(client, 24)

    def others(gone: int) -> list[int]:
        other = claim(client, 3).meta if gone % 2 else client.get_meta("x", 3, "p", task_name="t")
        return other.global_indexes

    with deeds.overtaken(client, 5, others) as taken:
        mine = claim(client, 3)
    assert len(taken) == 15
    assert len({*taken, *mine.meta.global_indexes}) == 18
    client.ack(mine)


def test_a_claim_stands_behind_the_commit_of_another_process(client: TransferQueueClient, nursery: Nursery) -> None:
    meta = put_rows(client, 8)
    slow = nursery.start(stop_elsewhere, client.session, "write_gate.entered", deeds.fetch, "p", 3)
    assert slow.receive() == "paused"
    # Its snapshot is from before that commit: it loses, and chooses again.
    fast = Call(deeds.claim, client, "p", 3)
    slow.pipe.send("go on")
    both = [slow.receive(), fast.result()]
    assert slow.wait() == 0
    assert sorted(both) == [meta.global_indexes[:3], meta.global_indexes[3:6]]


@pytest.mark.parametrize("how", ["claim", "fetch"])
def test_a_sampler_that_takes_long_delays_nobody_else(client: TransferQueueClient, how: str) -> None:
    """It sleeps until puts, other tasks and other consumers of its own task are through: if it held any of them up,
    this test would not end."""
    rows = put_rows(client, 4).global_indexes
    asleep, others_are_done = threading.Event(), threading.Event()
    sleeper: list[int] = []

    def sample(ready: list[int], size: int) -> tuple[list[int], list[int]]:
        if threading.get_ident() in sleeper:
            sleeper.clear()
            asleep.set()
            assert others_are_done.wait(60)
        return ready[:size], ready[:size]

    def slowly() -> list[int]:
        sleeper.append(threading.get_ident())
        found = claim(client, 2).meta if how == "claim" else client.get_meta("x", 2, "p", task_name="t")
        return found.global_indexes

    with deeds.sampler(client, sample):
        slow = Call(slowly)
        assert asleep.wait(60)
        more = put_rows(client, 2).global_indexes
        client.kv_put("k", "q", {"x": torch.tensor(1)})
        assert claim(client, 2, "u").meta.global_indexes == rows[:2]
        assert client.get_consumption_status("t", "p")[1].tolist() == [0] * 6  # type: ignore[union-attr]
        mine = claim(client, 3)
        assert mine.meta.global_indexes == rows[:3]
        client.ack(mine)
        others_are_done.set()
        assert slow.result() == [rows[3], more[0]], "it was overtaken, and chose again"


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_sampler_that_raises_claims_nothing(client: TransferQueueClient, error: type[BaseException]) -> None:
    meta = put_rows(client, 4)

    def sample(ready: list[int], size: int) -> tuple[list[int], list[int]]:
        raise error("mine")

    with deeds.sampler(client, sample), pytest.raises(error, match="mine"):
        claim(client, 2)
    assert claim(client, 4).meta.global_indexes == meta.global_indexes


def test_a_reset_between_choice_and_claim(client: TransferQueueClient) -> None:
    meta = put_rows(client, 6)
    before = claim(client, 3)
    reset = False

    def sample(ready: list[int], size: int) -> tuple[list[int], list[int]]:
        nonlocal reset
        if not reset:
            reset = True
            client.reset_consumption("p", "t")
        return ready[:size], ready[:size]

    with deeds.sampler(client, sample):
        mine = claim(client, 3)
    assert mine.meta.global_indexes == meta.global_indexes[:3]
    with pytest.raises(tq.StaleMetadataError):
        client.ack(before)
    client.ack(mine)
