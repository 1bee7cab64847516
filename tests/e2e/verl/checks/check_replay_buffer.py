"""verl's ReplayBuffer samples finished prompt groups while agents are at work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from omegaconf import OmegaConf
from verl_modules import trainer_module
from verl_rollouts import finished_rows, put_prompts, put_rollouts

N_SESSIONS = 4


@pytest.fixture
def train(queue: Any) -> Iterator[str]:
    yield "train"
    left = list(queue.kv_list("train").get("train", {}))
    if left:
        queue.kv_clear(keys=left, partition_id="train")


def buffer(name: str, **arguments: Any) -> Any:
    settings = {
        "trainer_mode": "sync" if name == "ReplayBuffer" else "separate_async",
        "trainer_config": OmegaConf.create({}),
        "max_off_policy_threshold": None,
        "max_off_policy_strategy": "drop",
        "sampler_kwargs": OmegaConf.create({}),
        "poll_interval": 0.05,
    }
    return getattr(trainer_module("replay_buffer"), name)(**{**settings, **arguments})


def test_sample_waits_for_groups_and_takes_them_whole(queue: Any, agents: Any, train: str) -> None:
    uids = [f"prompt{number}" for number in range(6)]
    put_prompts(queue, train, uids)
    agents[0].start.remote(train, uids[:4], N_SESSIONS)  # the other two never start

    batch, metrics = buffer("ReplayBuffer").sample(global_steps=1, partition_id=train, batch_size=4)

    assert isinstance(batch, queue.KVBatchMeta)
    assert metrics == {}
    expected = finished_rows(uids[:4], N_SESSIONS, failing=[])
    assert sorted(batch.keys) == sorted(expected)
    assert [tag["seq_len"] for tag in batch.tags] == [len(expected[key]["input_ids"]) for key in batch.keys]
    data = queue.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["uid", "rm_scores"])
    assert data.pop("uid").tolist() == [key.split("_")[0] for key in batch.keys]
    assert data["rm_scores"].sum(dim=1).tolist() == [1.0] * len(batch)
    left = set(queue.kv_list(train)[train]) - set(batch.keys)
    assert sorted(left) == ["prompt4", "prompt5"], "sampled prompts are cleared, waiting ones stay"


@pytest.mark.parametrize("metric", ["reward", "acc"])
def test_groups_without_a_signal_are_evicted_and_refilled(queue: Any, agents: Any, train: str, metric: str) -> None:
    """DAPO: a group whose rewards are all equal teaches nothing; the buffer reads them from the queue and drops it."""
    put_prompts(queue, train, ["even", "mixed0"])
    refilled: list[int] = []

    def refill(count: int) -> None:
        refilled.append(count)
        fresh = [f"mixed{len(refilled)}x{at}" for at in range(count)]
        put_prompts(queue, train, fresh)
        agents[0].start.remote(train, fresh, N_SESSIONS)

    agents[0].start.remote(train, ["even", "mixed0"], N_SESSIONS)
    sampler = buffer("ReplayBufferAsync", refill_fn=refill, filter_groups_metric=metric)
    batch, metrics = sampler.sample(global_steps=1, partition_id=train, batch_size=2)

    assert refilled == [1]
    assert metrics["training/filter_groups/evicted_samples"] == 1
    assert metrics["_dapo_filtered_reward_counts"] == {1.0: 1}
    assert sorted({key.split("_")[0] for key in batch.keys}) == ["mixed0", "mixed1x0"]
    assert len(batch) == 2 * N_SESSIONS
    assert not [key for key in queue.kv_list(train)[train] if key.startswith("even")]


def test_stale_and_failed_groups_make_room(queue: Any, train: str) -> None:
    for uid, steps, status in (("old", 1, "finished"), ("new", 3, "finished"), ("bad", 3, "failure")):
        put_prompts(queue, train, [uid], global_steps=steps, status=status)
        put_rollouts(queue, train, [uid], sessions=2)
    refilled: list[int] = []
    sampler = buffer("ReplayBufferAsync", refill_fn=refilled.append, max_off_policy_threshold=2)
    batch, metrics = sampler.sample(global_steps=3, partition_id=train, batch_size=1)

    assert sorted(batch.keys) == ["new_0_0", "new_1_0"]
    assert refilled == [2]
    assert metrics["training/off_policy/evicted_samples"] == 1
    assert metrics["training/rollout_failure/evicted_samples"] == 1
    assert sorted(queue.kv_list(train)[train]) == ["new_0_0", "new_1_0"]
