"""An actor that has the queue as verl's TaskRunnerV1 has it: module level, so that Ray imports it."""

from __future__ import annotations

from typing import Any

from omegaconf import OmegaConf
from verl_modules import trainer_module
from verl_rollouts import put_prompts, start_agents


class TaskRunner:
    """What TaskRunnerV1 of verl does with the queue around one step of a trainer."""

    def run(self, config: Any, uids: list[str]) -> dict[str, list[int]]:
        """The tokens of every row that it sampled, by key."""
        import transfer_queue

        transfer_queue.init(config)
        try:
            put_prompts(transfer_queue, "train", uids)
            agent = start_agents(1)[0]
            agent.start.remote("train", uids, 2)
            nothing = OmegaConf.create({})
            sampler = trainer_module("replay_buffer").ReplayBuffer("sync", nothing, None, "drop", nothing, 0.05)
            batch, _ = sampler.sample(global_steps=1, partition_id="train", batch_size=len(uids))
            data = transfer_queue.kv_batch_get(keys=batch.keys, partition_id="train", select_fields=["input_ids"])
            rows = [row.tolist() for row in data["input_ids"].unbind(0)]
            transfer_queue.kv_clear(keys=batch.keys, partition_id="train")
            return dict(zip(batch.keys, rows, strict=True))
        finally:
            transfer_queue.close()
