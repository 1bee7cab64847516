"""Rows that a consumer takes and has yet to say whether it is done with them."""

from __future__ import annotations

import asyncio
import pickle
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from tensordict import TensorDict

import transferqueue as tq
from transferqueue import TransferQueueClient, _native

pytestmark = pytest.mark.timeout(120)
HOUR_S = 3600.0


def put(client: TransferQueueClient, rows: int, partition: str = "p") -> tq.BatchMeta:
    return client.put(TensorDict({"x": torch.arange(rows)}, [rows]), partition_id=partition)


def claim(client: TransferQueueClient, rows: int, task: str = "t", **options: Any) -> tq.Claim:
    options = {"fields": "x", "batch_size": rows, "lease_s": HOUR_S, **options}
    return client.claim(task, options.pop("partition_id", "p"), **options)


def status(client: TransferQueueClient, task: str = "t") -> list[int]:
    _, consumed = client.get_consumption_status(task, "p")
    assert consumed is not None
    return list(consumed.tolist())


def assert_over(client: TransferQueueClient, claimed: tq.Claim) -> None:
    before = status(client, claimed.task_name) if "p" in client.get_partition_list() else None
    for call in (client.ack, client.nack, lambda it: client.extend(it, 5.0)):
        with pytest.raises(tq.StaleMetadataError, match=f"claim {claimed.fencing} of task '{claimed.task_name}'"):
            call(claimed)
    if before is not None:
        assert status(client, claimed.task_name) == before


class Clock:
    """This process's clock of claims."""

    ahead_s = 0.0

    def forward(self, seconds: float) -> None:
        self.ahead_s += seconds
        _native.set_claim_clock_ahead(self.ahead_s)


@pytest.fixture
def clock() -> Iterator[Clock]:
    yield Clock()
    _native.set_claim_clock_ahead(0)


def test_a_claim_brings_rows_with_tags_and_types(client: TransferQueueClient) -> None:
    client.kv_batch_put(["a", "b"], "p", TensorDict({"x": torch.ones(2, 3)}, [2]), [{"score": 1}, {"score": 2}])
    before_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    claimed = claim(client, 2, lease_s=60)
    assert claimed
    assert (claimed.task_name, claimed.partition_id, claimed.lease_s) == ("t", "p", 60.0)
    assert claimed.deadline_s >= before_s + 60
    assert claimed.fencing > 0
    assert claimed.meta.is_ready
    assert claimed.meta.custom_meta == [{"score": 1}, {"score": 2}]
    assert client.get_data(claimed.meta)["x"].shape == (2, 3)
    client.ack(claimed)
    assert status(client) == [1, 1]


def test_claimed_rows_are_nobody_elses_and_not_consumed(client: TransferQueueClient) -> None:
    rows = put(client, 6).global_indexes
    claimed = claim(client, 2)
    assert claimed.meta.global_indexes == rows[:2]
    assert claim(client, 2).meta.global_indexes == rows[2:4]
    assert client.get_meta("x", 2, "p", task_name="t").global_indexes == rows[4:]
    assert not claim(client, 1)
    assert status(client) == [0, 0, 0, 0, 1, 1]
    assert not client.check_consumption_status("t", "p")
    with pytest.raises(tq.TransferTimeoutError, match=r"there are 0, 2 that it has consumed and 4 that are claimed\."):
        client.get_meta("x", 1, "p", task_name="t", timeout=0)
    with pytest.raises(tq.TransferTimeoutError, match="0 of 1 are there"):
        client.wait("p", fields="x", count=1, task_name="t", timeout=0)
    assert client.wait("p", fields="x", count=6, timeout=0).size == 6
    assert claim(client, 6, "u").meta.global_indexes == rows, "tasks are independent"


def test_ack_consumes_and_nack_offers_again_and_a_claim_ends_once(client: TransferQueueClient) -> None:
    rows = put(client, 4).global_indexes
    done, undone = claim(client, 2), claim(client, 2)
    client.ack(done)
    client.nack(undone)
    assert status(client) == [1, 1, 0, 0]
    assert_over(client, done)
    assert_over(client, undone)
    again = claim(client, 2)
    assert again.meta.global_indexes == rows[2:]
    assert again.fencing > undone.fencing > done.fencing
    assert_over(client, undone)
    client.ack(again)
    assert client.check_consumption_status("t", "p")


def test_a_claim_lapses_by_its_time_and_its_rows_come_back(client: TransferQueueClient, clock: Clock) -> None:
    rows = put(client, 2).global_indexes
    late = claim(client, 2, lease_s=10)
    clock.forward(9)
    assert not claim(client, 1)
    clock.forward(2)
    assert_over(client, late)
    with pytest.raises(tq.StaleMetadataError, match=r"it ran out 1\.\d+ s ago"):
        client.ack(late)
    assert claim(client, 2).meta.global_indexes == rows
    with pytest.raises(KeyError):
        client.ack(late)


def test_a_claim_that_is_extended_lasts(client: TransferQueueClient, clock: Clock) -> None:
    put(client, 2)
    claimed = claim(client, 2, lease_s=10)
    clock.forward(9)
    deadline_s = claimed.deadline_s
    client.extend(claimed, 100)
    assert claimed.lease_s == 100.0
    assert claimed.deadline_s > deadline_s + 90
    clock.forward(99)
    assert not claim(client, 1)
    client.ack(claimed)
    assert status(client) == [1, 1]


@pytest.mark.parametrize("how", ["nack", "lapse", "reset"])
def test_who_waits_for_rows_is_woken_when_they_come_back(client: TransferQueueClient, how: str) -> None:
    rows = put(client, 2).global_indexes
    held = claim(client, 2, lease_s=0.4 if how == "lapse" else HOUR_S)
    with ThreadPoolExecutor(3) as pool:
        waiters = [
            pool.submit(lambda: claim(client, 1, timeout=60).meta.global_indexes),
            pool.submit(lambda: client.get_meta("x", 1, "p", task_name="t", timeout=60).global_indexes),
            pool.submit(lambda: client.wait("p", fields="x", count=1, task_name="t", timeout=60).size),
        ]
        if how != "lapse":  # that may be over by now
            assert not any(waiter.done() for waiter in waiters)
        if how == "nack":
            client.nack(held)
        elif how == "reset":
            client.reset_consumption("p", "t")
        found: list[Any] = [waiter.result() for waiter in waiters[:2]]
        assert sorted(found[0] + found[1]) == rows
        client.reset_consumption("p", "t")  # the third may have come too late for any
        assert waiters[2].result() == 1
    assert_over(client, held)


def test_claims_of_a_loop_wait_beside_it_and_together(client: TransferQueueClient) -> None:
    rows = put(client, 16).global_indexes
    wanted = {"fields": "x", "lease_s": HOUR_S}

    async def main() -> list[int]:
        held = await client.async_claim("t", "p", batch_size=16, **wanted)  # type: ignore[arg-type]
        waiting = [
            asyncio.create_task(client.async_claim("t", "p", batch_size=2, timeout=60, **wanted))  # type: ignore[arg-type]
            for _ in range(8)
        ]
        await asyncio.sleep(0.05)
        assert not any(task.done() for task in waiting)
        await client.async_extend(held, HOUR_S)
        await client.async_nack(held)
        claims = await asyncio.gather(*waiting)
        await asyncio.gather(*[client.async_ack(claimed) for claimed in claims])
        return [row for claimed in claims for row in claimed.meta.global_indexes]

    assert sorted(asyncio.run(main())) == rows
    assert client.check_consumption_status("t", "p")


def test_a_claim_waits_for_the_put_that_completes_it(client: TransferQueueClient) -> None:
    assert not claim(client, 1, partition_id="not yet")
    later = threading.Timer(0.2, lambda: put(client, 3))
    later.start()
    claimed = claim(client, 3, timeout=None)
    later.join()
    assert claimed.meta.size == 3
    started_s = time.monotonic()
    nothing = claim(client, 1, timeout=0.3)
    assert time.monotonic() - started_s >= 0.3
    assert not nothing
    assert nothing.meta.size == 0


def test_more_asked_than_ready_waits_or_comes_in_part_or_not(client: TransferQueueClient) -> None:
    put(client, 8)
    assert not claim(client, 100)
    assert not claim(client, 100, timeout=0.1)
    assert status(client) == [0] * 8
    assert claim(client, 100, partial=True).meta.size == 8


def test_ending_an_empty_claim_does_nothing(client: TransferQueueClient) -> None:
    nothing = claim(client, 1)
    client.ack(nothing)
    client.nack(nothing)
    client.extend(nothing, 5.0)
    assert nothing.fencing == 0


def test_a_reset_offers_claimed_rows_again_and_ends_the_claims_of_that_task_only(client: TransferQueueClient) -> None:
    rows = put(client, 4).global_indexes
    mine, others = claim(client, 2, "A"), claim(client, 2, "B")
    client.ack(claim(client, 2, "A"))
    client.reset_consumption("p", "A")
    assert_over(client, mine)
    assert claim(client, 4, "A").meta.global_indexes == rows
    assert claim(client, 2, "B").meta.global_indexes == rows[2:]
    client.ack(others)
    assert status(client, "B") == [1, 1, 0, 0]


def test_clearing_a_partition_ends_its_claims(client: TransferQueueClient) -> None:
    put(client, 2)
    claimed = claim(client, 2)
    client.clear_partition("p")
    assert_over(client, claimed)
    rows = put(client, 2).global_indexes
    assert_over(client, claimed)
    assert claim(client, 2).meta.global_indexes == rows


def test_clearing_claimed_rows_leaves_the_others_claimed(client: TransferQueueClient) -> None:
    meta = put(client, 4)
    kept, given_back = claim(client, 2), claim(client, 2)
    client.clear_samples(meta[1:3])
    with pytest.raises(tq.StaleMetadataError):
        client.get_data(kept.meta)
    client.ack(kept)
    client.nack(given_back)
    assert status(client) == [1, 0]
    assert claim(client, 1).meta.global_indexes == meta.global_indexes[3:]


def test_overwriting_a_claimed_row_leaves_it_claimed(client: TransferQueueClient) -> None:
    meta = put(client, 2)
    claimed = claim(client, 2)
    client.put(TensorDict({"x": torch.tensor([7, 8])}, [2]), metadata=meta)
    assert not claim(client, 1)
    assert client.get_data(claimed.meta)["x"].tolist() == [7, 8]
    client.ack(claimed)


def test_a_claim_travels_and_every_copy_ends_with_it(client: TransferQueueClient) -> None:
    put(client, 2)
    claimed = claim(client, 2)
    copy = pickle.loads(pickle.dumps(claimed))
    assert copy.meta.global_indexes == claimed.meta.global_indexes
    client.extend(copy, 2 * HOUR_S)
    assert copy.deadline_s > claimed.deadline_s
    client.ack(copy)
    assert_over(client, claimed)


def test_a_claim_of_another_session_is_refused_by_name(client: TransferQueueClient) -> None:
    put(client, 2)
    claimed = claim(client, 2)
    claimed.meta.session = "elsewhere"
    with pytest.raises(tq.SessionNotFoundError, match="'elsewhere'"):
        client.ack(claimed)


class Ranked(tq.RankAwareSampler):
    """Fills in what the configuration of these tests leaves out."""

    def sample(self, ready_indexes: list[int], batch_size: int, dp_rank: int = 0, **_: Any) -> Any:  # type: ignore[override]
        return super().sample(ready_indexes, batch_size, dp_rank, 0, "", "")

    def has_cached_result(self, partition_id: str, task_name: str, sampling_config: Any = None) -> bool:
        return super().has_cached_result("", "", {**(sampling_config or {}), "batch_index": 0})


def test_a_sampler_that_keeps_its_answers_claims_the_same_rows_again(
    client: TransferQueueClient, client_at_home: TransferQueueClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_at_home, "_sampler", Ranked)
    rows = put(client, 6).global_indexes

    def of_rank(dp_rank: int) -> tq.Claim:
        return claim(client, 2, sampling={"dp_rank": dp_rank})

    def fetch_of_rank(dp_rank: int) -> tq.BatchMeta:
        return client.get_meta("x", 2, "p", task_name="t", sampling_config={"dp_rank": dp_rank}, polling_mode=True)

    first = of_rank(0)
    assert first.meta.global_indexes == rows[:2]
    assert not of_rank(0), "what it would repeat is claimed"
    assert not fetch_of_rank(0)
    client.nack(first)
    again = of_rank(0)
    assert again.meta.global_indexes == rows[:2]
    client.ack(again)
    with pytest.raises(tq.StaleMetadataError, match="the task has consumed them"):
        of_rank(0)
    assert fetch_of_rank(0).global_indexes == rows[:2], "who fetches may ask again"
    assert of_rank(1).meta.global_indexes == rows[2:4]


def test_a_claim_takes_what_the_sampler_wants_consumed(
    client: TransferQueueClient, client_at_home: TransferQueueClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Lending(tq.BaseSampler):
        def sample(self, ready_indexes: list[int], batch_size: int, **_: Any) -> tuple[list[int], list[int]]:
            return ready_indexes[:batch_size], ready_indexes[:1]

    monkeypatch.setattr(client_at_home, "_sampler", Lending)
    rows = put(client, 3).global_indexes
    first, second = claim(client, 2), claim(client, 2)
    assert first.meta.global_indexes == rows[:2]
    assert second.meta.global_indexes == rows[1:]
    client.ack(first)
    client.nack(second)
    assert status(client) == [1, 0, 0]


def test_eight_claimants_share_rows_without_overlap(client: TransferQueueClient) -> None:
    rows = put(client, 120).global_indexes

    def consume(_: int) -> list[int]:
        got: list[int] = []
        while claimed := claim(client, 5, partial=True):
            if len(got) % 3 == 0:
                client.nack(claimed)
                claimed = claim(client, 4, partial=True)
            got += claimed.meta.global_indexes
            client.ack(claimed)
        return got

    with ThreadPoolExecutor(8) as pool:
        parts = list(pool.map(consume, range(8)))
    assert sorted(index for part in parts for index in part) == rows


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"batch_size": 0}, "batch_size must be an int >= 1"),
        ({"batch_size": True}, "batch_size"),
        ({"lease_s": 0}, "lease_s must be a number of seconds > 0"),
        ({"lease_s": -1.0}, "lease_s"),
        ({"lease_s": float("inf")}, "lease_s"),
        ({"lease_s": float("nan")}, "lease_s"),
        ({"lease_s": "1"}, "lease_s must be seconds"),
        ({"lease_s": None}, "lease_s"),
        ({"task": ""}, "task_name"),
        ({"task": None}, "task_name must be a str"),
        ({"fields": []}, "fields"),
        ({"timeout": -1}, "timeout"),
        ({"partition_id": ""}, "partition"),
    ],
)
def test_wrong_arguments_are_refused_by_name(client: TransferQueueClient, options: dict[str, Any], error: str) -> None:
    put(client, 2)
    with pytest.raises((ValueError, TypeError), match=error):
        claim(client, **{"rows": 1, **options})
    with pytest.raises(TypeError, match="ack takes a Claim, not BatchMeta"):
        client.ack(tq.BatchMeta())  # type: ignore[arg-type]
    claimed = claim(client, 2)
    with pytest.raises(ValueError, match="lease_s"):
        client.extend(claimed, 0)
    client.ack(claimed)
