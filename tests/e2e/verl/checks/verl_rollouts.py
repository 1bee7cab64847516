"""Rows in the format of verl's rollouts: keys `{uid}_{session}_{output}`, ragged token columns, dicts and messages."""

from __future__ import annotations

import asyncio
from typing import Any

import torch
from tensordict import TensorDict
from verl.utils.tensordict_utils import list_of_dict_to_tensordict


def trajectory(uid: str, session: int, *, reward: float = 1.0, global_steps: int = 1) -> dict[str, Any]:
    """What an agent loop puts for one output; lengths differ from session to session, values tell the row."""
    prompts = torch.arange(3 + len(uid) % 3, dtype=torch.int64) + 10
    responses = torch.arange(2 + session, dtype=torch.int64) + 100 * (session + 1)
    input_ids = torch.cat([prompts, responses])
    response_mask = torch.ones_like(responses)
    rm_scores = torch.zeros(len(responses), dtype=torch.float32)
    rm_scores[-1] = reward
    return {
        "prompts": prompts,
        "responses": responses,
        "response_mask": response_mask,
        "loss_mask": response_mask,
        "input_ids": input_ids,
        "position_ids": torch.arange(len(input_ids)),
        "rollout_log_probs": torch.full((len(responses),), -0.5),
        "rm_scores": rm_scores,
        "num_turns": 2 + session,
        "uid": uid,
        "session_id": session,
        "global_steps": global_steps,
        "raw_prompt": [{"role": "user", "content": f"question {uid}"}],
        "reward_model": {"ground_truth": f"answer {uid}", "style": "rule"},
        "data_source": "unit",
        "multi_modal_inputs": {},
        "extra_fields": {"reward_extra_info": {"acc": reward}, "min_global_steps": None},
    }


def batch_of(rows: list[dict[str, Any]]) -> TensorDict:
    batch = list_of_dict_to_tensordict(rows)
    assert isinstance(batch, TensorDict)
    return batch


def tag_of(row: dict[str, Any]) -> dict[str, Any]:
    prompt_len, response_len = len(row["prompts"]), len(row["responses"])
    return {
        "status": "success",
        "prompt_len": prompt_len,
        "response_len": response_len,
        "seq_len": prompt_len + response_len,
        "global_steps": row["global_steps"],
        "min_global_steps": row["global_steps"],
        "max_global_steps": row["global_steps"],
    }


def key_of(row: dict[str, Any]) -> str:
    return f"{row['uid']}_{row['session_id']}_0"


def put_rollouts(queue: Any, partition: str, uids: list[str], sessions: int) -> tuple[Any, list[dict[str, Any]]]:
    """All rows of the prompts in one put: its metadata, and the rows in its order."""
    rows = [trajectory(uid, session) for uid in uids for session in range(sessions)]
    keys, tags = [key_of(row) for row in rows], [tag_of(row) for row in rows]
    return queue.kv_batch_put(keys=keys, partition_id=partition, fields=batch_of(rows), tags=tags), rows


def put_prompts(queue: Any, partition: str, uids: list[str], *, global_steps: int = 1, status: str = "pending") -> None:
    """Registers prompts by tag alone, as the synchronous trainer does."""
    tag = {"is_prompt": True, "status": status, "global_steps": global_steps}
    queue.kv_batch_put(keys=uids, partition_id=partition, tags=[dict(tag) for _ in uids])


def finished_rows(uids: list[str], sessions: int, failing: list[str]) -> dict[str, dict[str, Any]]:
    """Rows that agents leave for these prompts, by key: the last session of a failing prompt raises."""
    rows = [trajectory(uid, session) for uid in uids for session in range(sessions - (1 if uid in failing else 0))]
    return {key_of(row): row for row in rows}


class Agent:
    """An asynchronous actor that does with the queue what verl's AgentLoopWorkerTQ does, with a fixed text as model."""

    def __init__(self) -> None:
        import transfer_queue

        self.queue = transfer_queue
        self.queue.init()
        self._tasks: set[asyncio.Task[None]] = set()

    async def generate(
        self, partition: str, uids: list[str], sessions: int, failing: list[str], global_steps: int = 1
    ) -> None:
        """Ends when all its prompts have; verl's does not wait."""
        await asyncio.gather(*(self._prompt(partition, uid, sessions, uid in failing, global_steps) for uid in uids))

    async def start(self, partition: str, uids: list[str], sessions: int) -> None:
        """Returns at once, like verl's: the prompts go on in the background."""
        task = asyncio.create_task(self.generate(partition, uids, sessions, failing=[]))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _prompt(self, partition: str, uid: str, sessions: int, failing: bool, global_steps: int) -> None:
        await self.queue.async_kv_put(key=uid, partition_id=partition, tag={"status": "running"})
        broken = sessions - 1 if failing else None
        runs = [self._session(partition, uid, at, at == broken, global_steps) for at in range(sessions)]
        ends = await asyncio.gather(*runs, return_exceptions=True)
        status = "failure" if any(isinstance(end, BaseException) for end in ends) else "finished"
        await self.queue.async_kv_put(key=uid, partition_id=partition, tag={"status": status})

    async def _session(self, partition: str, uid: str, session: int, fails: bool, global_steps: int) -> None:
        await asyncio.sleep(0.001 * session)
        if fails:
            raise RuntimeError("this session's environment broke")
        row = trajectory(uid, session, reward=reward_of(uid, session), global_steps=global_steps)
        tag = {**tag_of(row), "min_global_steps": None}
        await self.queue.async_kv_batch_put(
            keys=[key_of(row)], fields=batch_of([row]), tags=[tag], partition_id=partition
        )


def reward_of(uid: str, session: int) -> float:
    """Prompts named `mixed...` get rewards that differ within their group."""
    return float(session % 2) if uid.startswith("mixed") else 1.0


def start_agents(count: int) -> list[Any]:
    import ray

    return [ray.remote(Agent).options(num_cpus=0).remote() for _ in range(count)]
