"""Streams of the compatible face, made from what the named actor answers; and that actor."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from omegaconf import DictConfig, OmegaConf
from tensordict import NonTensorStack, TensorDict

from tests.support.sessions import left_behind
from transferqueue.compat import transfer_queue as tq
from transferqueue.compat.transfer_queue.dataloader.streaming_dataset import chunk_batch_fn, default_fetch_batch_fn

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def config(ray_cluster: Any) -> Iterator[DictConfig]:
    made = tq.init(
        OmegaConf.create(
            {
                "controller": {"sampler": tq.RankAwareSampler, "polling_mode": True},
                "transferqueue": {"storage": {"size": "64MiB"}},
            },
            flags={"allow_objects": True},
        )
    )
    assert isinstance(made, DictConfig)
    yield made
    tq.close()
    assert left_behind(made.controller.zmq_info["session"]) == []


@pytest.fixture
def actor(ray_cluster: Any, config: DictConfig) -> Iterator[Any]:
    """The named actor, called as programs do; every partition is cleared by it afterwards."""
    handle = ray_cluster.get_actor("TransferQueueController", namespace="transfer_queue")

    class Calls:
        def __getattr__(self, name: str) -> Any:
            return lambda *args: ray_cluster.get(getattr(handle, name).remote(*args), timeout=60)

    calls: Any = Calls()
    yield calls
    for partition in calls.list_partitions():
        calls.clear_partition(partition)
    assert calls.list_partitions() == []


def put(start: int, stop: int) -> tq.BatchMeta:
    rows = range(start, stop)
    fields = {
        "id": torch.arange(start, stop),
        "ids": torch.nested.nested_tensor([torch.arange(row % 4 + 1) for row in rows], layout=torch.jagged),
        "text": NonTensorStack(*[f"row {row}" for row in rows]),
    }
    return tq.get_client().put(TensorDict(fields, [stop - start]), partition_id="p")


def stream(config: Any, **options: Any) -> tq.StreamingDataset:
    given: dict[str, Any] = {
        "batch_size": 4,
        "micro_batch_size": 2,
        "data_fields": ["id", "ids", "text"],
        "partition_id": "p",
        "task_name": "t",
        "dp_rank": 0,
        "should_check_consumption_status": True,
    }
    return tq.StreamingDataset(config=config, **{**given, **options})


def values(items: Any) -> list[int]:
    found: list[int] = []
    for batch, metadata in items:
        ids = batch["id"].tolist()
        assert (batch.batch_size[0], metadata.size) == (len(ids), len(ids))
        assert [len(row) for row in batch["ids"].unbind()] == [value % 4 + 1 for value in ids]
        assert list(batch["text"]) == [f"row {value}" for value in ids]
        found += ids
    return found


def test_the_actor_answers_from_the_index(actor: Any, config: DictConfig) -> None:
    assert actor.get_config() == config
    assert actor.get_partition_snapshot("p") is None
    data = TensorDict({"x": torch.ones(2, 3), "y": torch.ones(2)}, [2])
    tq.kv_batch_put(["a", "b"], "p", data, [{"n": 0}, {"n": 1}])
    tq.kv_put("c", "p", {"x": torch.ones(3)}, {"n": 2})
    assert actor.list_partitions() == ["p"]
    snapshot = actor.get_partition_snapshot("p")
    assert list(snapshot.keys_mapping) == ["a", "b", "c"]
    assert snapshot.global_indexes == set(snapshot.keys_mapping.values())
    for number, index in enumerate(snapshot.keys_mapping.values()):
        assert snapshot.custom_meta[index] == {"n": number}
        assert snapshot.production_status[index, snapshot.field_name_mapping["x"]] == 1
        assert snapshot.production_status[index, snapshot.field_name_mapping["y"]] == (number < 2)
    tq.kv_clear("b", "p")
    assert list(actor.get_partition_snapshot("p").keys_mapping) == ["a", "c"]


def test_a_stream_starts_before_the_first_put_and_ends(
    actor: Any, config: DictConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TQ_PRE_ALLOC_SAMPLE_NUM", "8")

    def produce() -> None:
        for row in range(8):
            time.sleep(0.02)
            put(row, row + 1)

    producer = threading.Thread(target=produce)
    producer.start()
    dataset = stream(actor.get_config())
    assert values(dataset) == list(range(8))
    producer.join()
    assert [metadata.size for _, metadata in dataset.buffer] == [4, 4]
    assert values(dataset) == []
    dataset.reset()
    assert values(dataset) == list(range(8))
    dataset.step("q")
    assert (dataset.buffer, dataset.partition_id, dataset.batch_index) == ([], "q", 0)


def test_rows_that_are_cleared_once_consumed_do_not_keep_a_stream_waiting(actor: Any, config: DictConfig) -> None:
    put(0, 8)
    found = []
    for batch, metadata in stream(config, micro_batch_size=4):
        found += batch["id"].tolist()
        tq.get_client().clear_samples(metadata)
    assert found == list(range(8))


def test_loaders_of_a_rank_see_the_same_and_no_row_twice(actor: Any, config: DictConfig) -> None:
    put(0, 24)
    first = tq.StreamingDataLoader(stream(config, dp_rank=0), num_workers=2, prefetch_factor=2)
    seen = values(first)
    again = values(tq.StreamingDataLoader(stream(config, dp_rank=0), num_workers=2))
    assert sorted(seen) == list(range(24))
    assert seen == again
    assert values(stream(config, dp_rank=1)) == []
    assert first.get_buffer() == []  # the workers have theirs


def test_the_users_functions_are_called(actor: Any, config: DictConfig) -> None:
    put(0, 4)
    calls = []

    def fetch(**arguments: Any) -> Any:
        calls.append(arguments)
        return default_fetch_batch_fn(**arguments)

    def process(batch: Any, metadata: Any, micro_batch_size: int) -> Any:
        assert micro_batch_size == 2
        return [(batch["id"], metadata.size)]

    [(ids, rows)] = list(stream(config, fetch_batch_fn=fetch, process_batch_fn=process))
    assert (ids.tolist(), rows) == ([0, 1, 2, 3], 4)
    assert calls[0]["sampling_config"] == {"dp_rank": 0, "task_name": "t"}
    assert (calls[0]["batch_index"], calls[0]["partition_id"], calls[0]["batch_size"]) == (0, "p", 4)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"micro_batch_size": 0}, "micro_batch_size must be >= 1"),
        ({"data_fields": []}, "at least one field"),
        ({"dp_rank": -1}, "greater than or equal to 0"),
    ],
    ids=str,
)
def test_bad_arguments(config: DictConfig, wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        stream(config, **wrong)


def test_chunks_are_short_at_the_end_and_their_metadata_is_even(config: DictConfig) -> None:
    batch = TensorDict({"x": torch.arange(7)}, [7])
    metadata = tq.BatchMeta(list(range(7)), ["p"] * 7)
    chunks = chunk_batch_fn(batch, metadata, micro_batch_size=3)
    assert [piece["x"].tolist() for piece, _ in chunks] == [[0, 1, 2], [3, 4, 5], [6]]
    assert [part.size for _, part in chunks] == [3, 2, 2]
    for size in (0, -1, 8, 1.5):
        with pytest.raises(ValueError, match="micro_batch_size"):
            chunk_batch_fn(batch, metadata, micro_batch_size=size)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="batch size"):
        chunk_batch_fn(TensorDict({"x": torch.arange(7)}, []), metadata)
    with pytest.raises(TypeError, match="Expected TensorDict, got dict"):
        chunk_batch_fn({"x": 1}, metadata)  # type: ignore[arg-type]
