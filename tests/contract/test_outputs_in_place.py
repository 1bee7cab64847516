"""Outputs of bridged methods computed straight into the store, on the real data plane: in one process and on ranks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tensordict import NonTensorStack, TensorDict

import transferqueue as tq
from tests.contract.batch_workers import Stage
from transferqueue.controller import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup, WorkerDiedError
from transferqueue.errors import StaleMetadataError
from transferqueue.metadata import BatchMeta
from transferqueue.workers import alloc_outputs, tqbridge

pytestmark = pytest.mark.timeout(120)
WIDE = 50_000


@pytest.fixture(scope="module")
def session(ray_cluster: Any) -> Iterator[Any]:
    opened = tq.init(**{"storage.size": "256MiB"})
    try:
        yield opened
    finally:
        opened.close()


@pytest.fixture
def client(session: Any) -> Iterator[Any]:
    client = tq.get_client()
    yield client
    for partition in client.get_partition_list():
        client.clear_partition(partition)
    client.trim()
    assert client.stats().pending_bytes == 0


def rows_of(client: Any, rows: int) -> BatchMeta:
    uid = NonTensorStack(*(f"u{i}" for i in range(rows)))
    meta: BatchMeta = client.put(TensorDict({"x": torch.arange(rows), "uid": uid}, [rows]), partition_id="train")
    return meta


def test_nothing_is_put_and_kept_tensors_cannot_reach_the_store(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[torch.Tensor] = []

    @tqbridge()
    def method(batch: TensorDict, keep: bool) -> TensorDict:
        out = alloc_outputs({"wide": ((WIDE,), torch.int64)}, batch_size=batch.batch_size)
        out["wide"].copy_(batch["x"][:, None].expand(-1, WIDE))
        if keep:
            kept.append(out["wide"])
        return out

    first, second = rows_of(client, 4), rows_of(client, 4)
    with monkeypatch.context() as patch:
        patch.setattr(type(client), "put", None)
        results = [method(first, keep=False), method(second, keep=True)]
    kept[0].fill_(-1)
    for result in results:
        assert result.field_names == ["uid", "wide", "x"]
        assert client.get_data(result)["wide"][:, -1].tolist() == [0, 1, 2, 3]
    assert kept.pop().unique().tolist() == [-1], "it stays the method's own"


def test_strings_beside_and_rows_that_were_cleared(client: Any) -> None:
    @tqbridge()
    def method(batch: TensorDict) -> TensorDict:
        out = alloc_outputs({"j": tq.Jagged(batch["x"] + 1, torch.int64), ("in", "n"): ((), torch.int64)})
        out["j"].values().fill_(7)
        out["in", "n"].copy_(batch["x"])
        out["label"] = batch.get("uid")
        if doomed:
            client.clear_samples(doomed[0])
        return out

    doomed: list[BatchMeta] = []
    found = client.get_data(method(rows_of(client, 3)))
    assert [row.tolist() for row in found["j"].unbind()] == [[7], [7, 7], [7, 7, 7]]
    assert found["in", "n"].tolist() == [0, 1, 2]
    assert found["label"].tolist() == ["u0", "u1", "u2"]
    doomed.append(rows_of(client, 3))
    with pytest.raises(StaleMetadataError):
        method(doomed[0])
    assert client.stats().pending_bytes == 0, "the room was given back"


def test_ranks_write_in_place_collecting_or_not_and_die_at_it(client: Any) -> None:
    with RayWorkerGroup(RayResourcePool([4], use_gpu=False), RayClassWithInitArgs(Stage)) as group:
        result = group.in_place_later(group.in_place(rows_of(client, 10)))
        found = client.get_data(result)
        assert found["logits"].tolist() == [[float(n)] * 3 for n in range(10)]
        assert found["in", "n"].tolist() == found["later"].tolist() == list(range(10))
        assert found["label"].tolist() == [f"u{n}" for n in range(10)]
        with pytest.raises(ValueError, match="no"):
            group.raise_with_room(result)
        # Every rank held the tensors of its aborted allocation: the room comes back behind them, with its next put.
        assert client.stats().pending_bytes > 0
        group.drop_kept()
        group.in_place_later(result)
        assert client.stats().pending_bytes == 0
        with pytest.raises(WorkerDiedError):
            group.die_with_room(result)
    # The room of dead ranks comes back with the service's tick, or when somebody needs it.
    deadline_s = time.monotonic() + 30
    while client.stats().pending_bytes and time.monotonic() < deadline_s:
        time.sleep(0.1)
    assert client.stats().pending_bytes == 0
    assert client.get_data(result)["logits"].shape == (10, 3), "what was committed before stays"
