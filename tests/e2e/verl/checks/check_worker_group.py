"""verl's worker group, DP 2 x TP 2: metadata goes to a method registered on a mesh, metadata comes back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from verl_rollouts import put_rollouts

PARTITION = "train"


@pytest.fixture
def rollouts(queue: Any) -> Iterator[tuple[Any, list[dict[str, Any]]]]:
    """5 rows: one more than DP 2 divides, so that the shards differ. The order is not that of the put."""
    batch, rows = put_rollouts(queue, PARTITION, ["a", "bb", "ccc", "dddd", "eeeee"], sessions=1)
    order = [3, 0, 4, 1, 2]
    batch.reorder(order)
    batch.extra_info.update({"temperature": 2.0, "dataloader_kwargs": {"shuffle": False}, "seed": None})
    yield batch, [rows[at] for at in order]
    queue.kv_clear(keys=batch.keys, partition_id=PARTITION)


def read(queue: Any, batch: Any, *fields: str) -> Any:
    return queue.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=list(fields))


def test_a_method_on_a_mesh_gets_its_rows_and_only_collecting_ranks_store(
    queue: Any, actor_group: Any, rollouts: Any
) -> None:
    batch, rows = rollouts
    output = actor_group.compute_log_prob(batch)

    assert isinstance(output, queue.KVBatchMeta)
    assert list(output.keys) == list(batch.keys), "rows in the caller's order"
    assert output.partition_id == PARTITION
    assert {"log_probs", "input_ids", "uid"} <= set(output.fields)
    seen = output.extra_info["metrics"]
    assert [one["rank"] for one in seen] == [0, 2], "TP rank 0 of both replicas"
    assert [one["rows"] for one in seen] == [3, 2]
    assert {"input_ids", "temperature", "raw_prompt"} <= set(seen[0]["fields"])

    log_probs = read(queue, batch, "log_probs")["log_probs"]
    assert log_probs.is_nested
    assert log_probs.offsets().diff().tolist() == [len(row["input_ids"]) for row in rows]
    for stored, row in zip(log_probs.unbind(0), rows, strict=True):
        torch.testing.assert_close(stored, -row["input_ids"].float() / 2.0)


def test_what_ranks_wrote_into_their_batch_reaches_nobody(queue: Any, actor_group: Any, rollouts: Any) -> None:
    batch, rows = rollouts
    actor_group.compute_log_prob(batch)
    stored = read(queue, batch, "input_ids")["input_ids"].unbind(0)
    assert [row.tolist() for row in stored] == [row["input_ids"].tolist() for row in rows]
    sums = actor_group.row_sums(batch)
    assert sums == [[int(row["input_ids"].sum()) for row in rows]] * 4, "every rank reads all rows, whole"


def test_only_the_fields_that_the_metadata_names_travel(actor_group: Any, rollouts: Any) -> None:
    batch, _ = rollouts
    batch.fields = ["input_ids"]
    seen = actor_group.compute_log_prob(batch).extra_info["metrics"]
    assert seen[0]["fields"] == ["dataloader_kwargs", "input_ids", "seed", "temperature"]


def test_columns_of_every_kind_come_back_from_a_mesh_of_four(queue: Any, actor_group: Any, rollouts: Any) -> None:
    batch, rows = rollouts
    output = actor_group.compute_score(batch)
    assert list(output.keys) == list(batch.keys)
    data = read(queue, batch, "score", "judge", "note")
    assert data["score"].tolist() == [float(len(row["responses"])) for row in rows]
    assert data.pop("judge").tolist() == [f"judge of {row['uid']}" for row in rows]
    notes = data.pop("note").tolist()
    assert [note["uid"] for note in notes] == [row["uid"] for row in rows]
    assert [note["rank"] for note in notes] == [0, 0, 1, 2, 3], "5 rows over DP 4: the first shard is longer"


def test_a_coroutine_that_does_not_block_the_controller(
    queue: Any, ray_cluster: Any, actor_group: Any, rollouts: Any
) -> None:
    batch, rows = rollouts
    future = actor_group.infer_batch(batch)
    ray_cluster.get(future.futures)
    values = read(queue, batch, "values", "response_mask")
    assert [row.tolist() for row in values["values"].unbind(0)] == [(row["input_ids"] * 0.5).tolist() for row in rows]


def test_a_method_that_returns_metrics_only(actor_group: Any, rollouts: Any) -> None:
    batch, rows = rollouts
    output = actor_group.update_actor(batch)
    first = sum(int(row["responses"].sum()) for row in rows[:3])
    assert output["metrics"] == {"tokens": first, "rows": 3, "kwargs": {"shuffle": False}}


def test_each_step_sees_what_the_last_one_stored(queue: Any, actor_group: Any, rollouts: Any) -> None:
    """verl's trainer goes on with the metadata that its puts return: fields and tags accumulate in it."""
    batch, rows = rollouts
    actor_group.compute_log_prob(batch)
    data = read(queue, batch, "log_probs", "response_mask", "absent")
    assert sorted(data.keys()) == ["log_probs", "response_mask"], "a field that nobody stored is left out"
    values, offsets = data["log_probs"].values(), data["log_probs"].offsets()
    lengths = data["response_mask"].offsets().diff()
    parts = [values[end - count - 1 : end - 1] for count, end in zip(lengths, offsets[1:], strict=True)]
    data["old_log_probs"] = torch.nested.as_nested_tensor(parts, layout=torch.jagged)
    following = queue.kv_batch_put(
        keys=batch.keys, partition_id=PARTITION, fields=data.select("old_log_probs", "response_mask")
    )
    assert {"old_log_probs", "log_probs", "input_ids"} <= set(following.fields)
    assert [tag["seq_len"] for tag in following.tags] == [len(row["input_ids"]) for row in rows]
    following.extra_info.update({"temperature": 1.0})
    seen = actor_group.compute_log_prob(following).extra_info["metrics"]
    assert "old_log_probs" in seen[0]["fields"]
