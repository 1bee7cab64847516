"""verl's padding utilities: a batch whose size does not fit gets synthetic rows through the queue."""

from __future__ import annotations

from typing import Any

import torch
from verl.trainer.ppo.padding_utils import SYNTHETIC_PADDING_SEQ_LEN, upsample_batch_to_divisible_size
from verl_rollouts import put_rollouts

EOS = 7


def test_upsampling_to_a_multiple_and_a_step_on_it(queue: Any, actor_group: Any) -> None:
    batch, rows = put_rollouts(queue, "padded", ["a", "bb", "ccc"], sessions=2)
    batch.extra_info["temperature"] = 4.0
    padded = upsample_batch_to_divisible_size(batch, batch_multiple=4, eos_token_id=EOS)

    assert isinstance(padded, queue.KVBatchMeta)
    assert len(padded) == 8
    assert padded.keys[:6] == batch.keys
    assert [tag.get("is_padding", False) for tag in padded.tags] == [False] * 6 + [True] * 2
    assert all(tag["seq_len"] == SYNTHETIC_PADDING_SEQ_LEN for tag in padded.tags[6:])
    assert padded.extra_info == {"temperature": 4.0}

    fields = ["prompts", "responses", "input_ids", "position_ids", "response_mask", "rm_scores", "num_turns", "uid"]
    data = queue.kv_batch_get(keys=padded.keys, partition_id="padded", select_fields=fields)
    assert data.pop("num_turns").tolist() == [row["num_turns"] for row in rows] + [0, 0]
    uids = data.pop("uid").tolist()
    assert uids[:6] == [row["uid"] for row in rows]
    assert uids[6] == uids[7] == padded.keys[6].split("_")[0]
    inputs = data["input_ids"].unbind(0)
    assert [row.tolist() for row in inputs[:6]] == [row["input_ids"].tolist() for row in rows]
    for pad in inputs[6:]:
        assert pad.tolist() == [EOS] * SYNTHETIC_PADDING_SEQ_LEN
    assert data["rm_scores"].sum(dim=1).tolist() == [1.0] * 6 + [0.0] * 2
    widths = data["responses"].to_padded_tensor(padding=-1).shape
    assert widths == (8, max(len(row["responses"]) for row in rows))

    output = actor_group.compute_log_prob(padded)
    assert [one["rows"] for one in output.extra_info["metrics"]] == [4, 4]
    log_probs = queue.kv_batch_get(keys=padded.keys, partition_id="padded", select_fields=["log_probs"])["log_probs"]
    torch.testing.assert_close(log_probs.unbind(0)[7], torch.full((SYNTHETIC_PADDING_SEQ_LEN,), -EOS / 4.0))
    queue.kv_clear(keys=padded.keys, partition_id="padded")


def test_a_batch_that_fits_is_left_alone(queue: Any) -> None:
    batch, _ = put_rollouts(queue, "padded", ["a"], sessions=2)
    assert upsample_batch_to_divisible_size(batch, batch_multiple=2, eos_token_id=EOS) is batch
    queue.kv_clear(keys=batch.keys, partition_id="padded")


def test_a_shorter_batch_pads_within_one_rank(queue: Any, actor_group: Any) -> None:
    """One row for DP 2: without padding a replica would get none."""
    batch, rows = put_rollouts(queue, "padded", ["only"], sessions=1)
    batch.extra_info["temperature"] = 1.0
    padded = upsample_batch_to_divisible_size(batch, batch_multiple=2, eos_token_id=EOS)
    assert len(padded) == 2
    output = actor_group.compute_log_prob(padded)
    assert [one["rows"] for one in output.extra_info["metrics"]] == [1, 1]
    data = queue.kv_batch_get(keys=padded.keys[:1], partition_id="padded", select_fields=["log_probs"])
    torch.testing.assert_close(data["log_probs"].unbind(0)[0], -rows[0]["input_ids"].float())
    queue.kv_clear(keys=padded.keys, partition_id="padded")
