"""Checkpoints as verl's asynchronous trainers write and resume from them. Runs late: it restarts the queue."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from tensordict.tensorclass import NonTensorData
from verl.utils import tensordict_utils as tu
from verl_rollouts import finished_rows, put_prompts, put_rollouts, start_agents


def prompt_batch(uids: list[str]) -> Any:
    """A batch of the dataloader: columns of strings, numbers and messages, and values for the whole batch."""
    columns = {
        "uid": uids,
        "raw_prompt": [[{"role": "user", "content": uid}] for uid in uids],
        "index": torch.arange(len(uids)),
        "dummy_tensor": torch.zeros(len(uids), 1, dtype=torch.uint8),
    }
    return tu.get_tensordict(columns, {"global_steps": 2, "validate": False})


def test_prompts_in_flight_and_finished_rollouts_survive_a_restart(
    queue: Any, queue_config: Any, ray_cluster: Any, tmp_path: Path
) -> None:
    uids = ["done", "running", "waiting"]
    batch = prompt_batch(uids)
    columns = [key for key in batch.keys() if not isinstance(batch.get(key), NonTensorData)]
    tags = [{"is_prompt": True, "status": "pending", "global_steps": 2} for _ in uids]
    queue.kv_batch_put(keys=uids, partition_id="train", tags=tags, fields=batch.select(*columns))
    put_rollouts(queue, "train", ["done"], sessions=2)
    put_rollouts(queue, "train", ["running"], sessions=1)
    queue.kv_batch_put(
        keys=["done", "running"], partition_id="train", tags=[{"status": "finished"}, {"status": "running"}]
    )

    step_folder = tmp_path / "global_step_2"
    step_folder.mkdir()
    path = str(step_folder / "transfer_queue")
    queue.save_checkpoint(path, metadata={"global_steps": 2})
    before = queue.kv_list("train")["train"]
    queue.kv_clear(keys=list(before), partition_id="train")  # what happens after the checkpoint is not in it
    metadata = json.loads((Path(path) / "metadata.json").read_text())
    assert metadata["user_metadata"] == {"global_steps": 2}
    assert metadata["storage_saved"] is True
    assert [entry.name for entry in step_folder.iterdir()] == ["transfer_queue"], "nothing half written beside it"

    queue.close()
    queue.init(queue_config)
    assert not queue.kv_list("train"), "a new queue is empty"
    queue.load_checkpoint(path)

    restored = queue.kv_list("train")["train"]
    assert restored == before
    assert restored["running"] == {"is_prompt": True, "status": "running", "global_steps": 2}
    rows = finished_rows(["done"], 2, failing=[])
    data = queue.kv_batch_get(keys=list(rows), partition_id="train")
    assert [row.tolist() for row in data["input_ids"].unbind(0)] == [row["input_ids"].tolist() for row in rows.values()]
    assert data.pop("extra_fields").tolist() == [row["extra_fields"] for row in rows.values()]

    reissued = reissue(queue, "train")
    assert reissued.pop("uid").tolist() == ["running", "waiting"]
    assert reissued["index"].tolist() == [1, 2]
    assert [message[0]["content"] for message in list(reissued["raw_prompt"])] == ["running", "waiting"]
    tags_now = queue.kv_list("train")["train"]
    assert "running_0_0" not in tags_now, "what an interrupted prompt had produced is not trained on"
    assert {tags_now[uid]["status"] for uid in ("running", "waiting")} == {"pending"}

    agent = start_agents(1)[0]  # a new process after the resume
    ray_cluster.get(agent.generate.remote("train", ["running", "waiting"], 1, failing=[], global_steps=3))
    assert {"done_0_0", "done_1_0", "running_0_0", "waiting_0_0"} <= set(queue.kv_list("train")["train"])


def reissue(queue: Any, partition: str) -> Any:
    """The calls with which a resumed trainer of verl starts unfinished prompts again."""
    items = queue.kv_list(partition).get(partition, {})
    unfinished = [key for key, tag in items.items() if tag.get("is_prompt") and tag["status"] in ("pending", "running")]
    batch = queue.kv_batch_get(keys=unfinished, partition_id=partition)
    old = [key for key, tag in items.items() if not tag.get("is_prompt") and key.split("_", 1)[0] in unfinished]
    queue.kv_clear(keys=old, partition_id=partition)
    tu.assign_non_tensor_data(batch, "global_steps", 3)
    tags = [{"is_prompt": True, "status": "pending", "global_steps": 3} for _ in unfinished]
    queue.kv_batch_put(keys=unfinished, partition_id=partition, tags=tags)
    return batch


def test_a_second_checkpoint_replaces_the_first(queue: Any, tmp_path: Path) -> None:
    path = tmp_path / "transfer_queue"
    put_prompts(queue, "twice", ["one"])
    queue.save_checkpoint(path, metadata={"global_steps": 1})
    put_prompts(queue, "twice", ["two"])
    queue.save_checkpoint(path, metadata={"global_steps": 2})
    queue.kv_clear(keys=["one", "two"], partition_id="twice")
    queue.load_checkpoint(path)
    assert sorted(queue.kv_list("twice")["twice"]) == ["one", "two"]
    assert json.loads((path / "metadata.json").read_text())["user_metadata"] == {"global_steps": 2}
