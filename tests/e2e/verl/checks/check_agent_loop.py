"""Agent loops of verl: many coroutines of asynchronous actors put single rows and move the status of their prompts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from verl_rollouts import finished_rows, put_prompts

PARTITION = "train"
N_PROMPTS, N_SESSIONS = 12, 4


def test_single_row_puts_of_many_coroutines_all_arrive_once(queue: Any, ray_cluster: Any, agents: Any) -> None:
    uids = [f"prompt{number}" for number in range(N_PROMPTS)]
    put_prompts(queue, PARTITION, uids)
    ray_cluster.get(
        [
            agent.generate.remote(PARTITION, uids[at::2], N_SESSIONS, failing=["prompt3"])
            for at, agent in enumerate(agents)
        ]
    )

    listed = queue.kv_list(PARTITION)[PARTITION]
    prompts = {key: tag for key, tag in listed.items() if tag.get("is_prompt", False)}
    assert sorted(prompts) == sorted(uids)
    assert {uid: tag["status"] for uid, tag in prompts.items()} == {
        uid: "failure" if uid == "prompt3" else "finished" for uid in uids
    }
    assert {tag["global_steps"] for tag in prompts.values()} == {1}, "a new status leaves the rest of a tag alone"
    expected = finished_rows(uids, N_SESSIONS, failing=["prompt3"])
    assert sorted(set(listed) - set(prompts)) == sorted(expected)

    keys = list(expected)
    rows = list(expected.values())
    data = queue.kv_batch_get(keys=keys, partition_id=PARTITION)
    assert data.batch_size == (len(keys),)
    assert [row.tolist() for row in data["responses"].unbind(0)] == [row["responses"].tolist() for row in rows]
    assert data.pop("uid").tolist() == [row["uid"] for row in rows]
    assert list(data["raw_prompt"]) == [row["raw_prompt"] for row in rows]
    assert [one["reward_extra_info"] for one in data.pop("extra_fields").tolist()] == [{"acc": 1.0}] * len(keys)
    assert data.pop("num_turns").tolist() == [row["num_turns"] for row in rows]
    assert all(listed[key]["seq_len"] == len(row["input_ids"]) for key, row in expected.items())
    assert all(listed[key]["min_global_steps"] is None for key in keys)

    queue.kv_clear(partition_id=PARTITION, keys=[*uids, *keys, "never there"])
    assert queue.kv_list(PARTITION).get(PARTITION, {}) == {}


def test_a_prompt_without_data_is_listed_but_has_nothing_to_get(queue: Any) -> None:
    put_prompts(queue, "tags only", ["lonely"])
    assert queue.kv_list()["tags only"]["lonely"]["status"] == "pending"
    with pytest.raises(ValueError, match="not ready"):
        queue.kv_batch_get(keys=["lonely"], partition_id="tags only")
    queue.kv_clear(partition_id="tags only", keys=["lonely"])


def test_calls_from_a_loop_of_its_own_each_time(queue: Any) -> None:
    """asyncio.run makes a loop, uses it and closes it: the next one must not find remains of the last."""

    async def mark(round_number: int) -> None:
        puts = [
            queue.async_kv_put(key=f"uid{number}", partition_id="marks", tag={f"round{round_number}": number})
            for number in range(50)
        ]
        await asyncio.gather(*puts)

    for round_number in range(3):
        asyncio.run(mark(round_number))
    listed = queue.kv_list("marks")["marks"]
    assert listed == {f"uid{n}": {"round0": n, "round1": n, "round2": n} for n in range(50)}
    queue.kv_clear(partition_id="marks", keys=list(listed))
