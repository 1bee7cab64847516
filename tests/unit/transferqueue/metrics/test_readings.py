"""What is exported of what the store says, without a server and without the library."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from tensordict import TensorDict

import transferqueue as tq
from tests.support.sessions import embedded
from transferqueue.metrics.catalogue import CATALOGUE
from transferqueue.metrics.readings import distribution, read


@pytest.fixture
def session() -> Iterator[tq.Session]:
    with embedded() as opened:
        yield opened


def test_buckets_are_cumulative_and_end_with_all() -> None:
    read_back = distribution(5_000_000_000, [(512, 2), (1024, 0), (1536, 3), (0, 1)])
    assert read_back.sum_s == 5.0
    assert read_back.buckets == [(512e-9, 2), (1024e-9, 2), (1536e-9, 5), (math.inf, 6)]


def test_everything_of_the_catalogue_has_a_value_with_its_labels(session: tq.Session) -> None:
    client = session.client
    client.set_limits("p", max_bytes="1MiB")
    client.put(TensorDict({"x": torch.arange(4)}, [4]), partition_id="p")
    client.get_meta(["x"], 2, "p", task_name="train")
    client.count_method("m", rows=1, get_s=1, run_s=2, put_s=3, viewed_bytes=4, copied_bytes=5, failed=False)
    readings = read(session.attachment.store, session=session.name, version="1")
    assert len({metric.name for metric in CATALOGUE}) == len(CATALOGUE)
    for metric in CATALOGUE:
        samples = (readings.distributions if metric.kind == "histogram" else readings.values)[metric.name]
        assert all(len(labels) == len(metric.labels) for labels, _ in samples)
    assert readings.values.keys() | readings.distributions.keys() == {metric.name for metric in CATALOGUE}


def test_rows_are_told_apart_by_what_was_produced_and_consumed(session: tq.Session) -> None:
    client = session.client
    meta = client.put(TensorDict({"x": torch.arange(6)}, [6]), partition_id="p")
    client.put(TensorDict({"y": torch.arange(2)}, [2]), metadata=meta.select_samples([0, 1]))
    client.get_meta(["x"], 3, "p", mode="insert")
    client.get_meta(["x"], 5, "p", task_name="train")
    readings = read(session.attachment.store, session=session.name, version="1")
    assert readings.values["transferqueue_rows"] == [
        (("p", "ready"), 2),
        (("p", "partial"), 4),
        (("p", "empty"), 3),
    ]
    assert readings.values["transferqueue_task_consumed_rows"] == [(("p", "train"), 5)]
    stats = client.stats("p").rows
    assert (stats["ready"], stats["partial"], stats["empty"]) == (2, 4, 3)


def test_waits_are_counted_with_their_outcome(session: tq.Session) -> None:
    client = session.client
    meta = client.put(TensorDict({"x": torch.arange(2)}, [2]), partition_id="p")
    with pytest.raises(tq.TransferTimeoutError):
        client.get_data(meta, fields=["y"], timeout=0.05)
    with pytest.raises(tq.TransferTimeoutError):
        client.get_data(meta, fields=["y"], timeout=0)  # a look
    client.get_data(meta, timeout=5)  # ready: no wait
    full = TensorDict({"x": torch.zeros(1, 40 << 20, dtype=torch.uint8)}, [1])
    client.put(full, partition_id="p")
    with pytest.raises(tq.StorageFullError):
        client.put(full, partition_id="p", timeout=0.05)
    readings = read(session.attachment.store, session=session.name, version="1")
    waits = dict(readings.distributions["transferqueue_wait_seconds"])
    for what in ("data", "room"):
        assert waits[what,].buckets[-1][1] == 1
        assert waits[what,].sum_s >= 0.04, "two clocks: the wait's and the counter's"
    assert readings.values["transferqueue_wait_timeouts_total"] == [(("data",), 1), (("room",), 1)]
