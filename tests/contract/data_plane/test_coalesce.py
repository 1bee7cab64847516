"""Rewriting scattered rows into one block."""

from __future__ import annotations

import pytest
import torch
from tensordict import NonTensorStack, TensorDict

import transferqueue as tq
from transferqueue import TransferQueueClient

pytestmark = pytest.mark.timeout(120)
COLUMNS = 10_000


def scattered(client: TransferQueueClient, rows: int = 8) -> tq.BatchMeta:
    metas = []
    for row in range(rows):
        data = {
            "x": torch.full((1, COLUMNS), row),
            "r": torch.nested.nested_tensor([torch.full((row + 1, 700), float(row))], layout=torch.jagged),
            "s": NonTensorStack(f"row {row}"),
            "o": NonTensorStack({"row": row, "set": {row}}),
        }
        metas.append(client.put(TensorDict(data, [1]), partition_id="p"))
    return tq.BatchMeta.concat(metas)


def check(client: TransferQueueClient, meta: tq.BatchMeta, rows: list[int]) -> None:
    found = client.get_data(meta)
    assert found["x"][:, 0].tolist() == rows
    assert found["x"][:, -1].tolist() == rows
    assert [row.shape for row in found["r"].unbind()] == [(row + 1, 700) for row in rows]
    assert [row.unique().tolist() for row in found["r"].unbind()] == [[float(row)] for row in rows]
    assert list(found["s"]) == [f"row {row}" for row in rows]
    assert [value["set"] for value in found["o"].tolist()] == [{row} for row in rows]


def test_readers_get_views_afterwards(client: TransferQueueClient) -> None:
    meta = scattered(client)
    before = client.get_data_with_report(meta)[1]
    assert before.bytes_viewed == 0
    assert client.coalesce(meta) is meta
    after = client.get_data_with_report(meta)[1]
    assert after.bytes_viewed >= 8 * COLUMNS * 8
    check(client, meta, list(range(8)))


def test_the_order_of_the_metadata_counts(client: TransferQueueClient) -> None:
    meta = scattered(client)
    meta.reorder([5, 2, 7, 0, 1, 3, 4, 6])
    client.coalesce(meta)
    check(client, meta, [5, 2, 7, 0, 1, 3, 4, 6])
    assert client.get_data_with_report(meta, fields=["x"])[1].bytes_viewed == 8 * COLUMNS * 8


def test_old_blocks_are_given_back_and_views_stay(client: TransferQueueClient) -> None:
    meta = scattered(client)
    held = client.get_data(meta[3])["x"]
    used = client.stats().used_bytes
    client.coalesce(meta)
    client._store.reclaim()
    assert client.stats().used_bytes <= used + 4096 * 8
    assert held.unique().tolist() == [3]
    check(client, meta, list(range(8)))


def test_some_fields_and_rows_only(client: TransferQueueClient) -> None:
    meta = scattered(client)
    client.coalesce(meta.select_samples([1, 4, 6]), fields=["x"])
    check(client, meta, list(range(8)))
    check(client, meta.select_samples([1, 4, 6]), [1, 4, 6])


def test_twice_with_pads_and_without_rows(client: TransferQueueClient) -> None:
    meta = scattered(client, 3).pad_to_divisor(4)
    client.coalesce(meta)
    client.coalesce(meta)
    check(client, meta, [0, 1, 2, 2])
    client.coalesce(tq.BatchMeta())


def test_fields_of_mixed_types_stay_where_they_are(client: TransferQueueClient) -> None:
    first = client.put(TensorDict({"x": torch.zeros(1, 3), "y": torch.zeros(1)}, [1]), partition_id="p")
    second = client.put(TensorDict({"x": torch.ones(1, 5).half(), "y": torch.ones(1)}, [1]), partition_id="p")
    meta = tq.BatchMeta.concat([first, second], validate=False)
    client.coalesce(meta)
    found = client.get_data(meta)
    assert found["y"].tolist() == [0, 1]
    rows = found["x"].tolist()
    assert [(tuple(row.shape), row.dtype) for row in rows] == [((3,), torch.float32), ((5,), torch.float16)]


def test_a_newer_put_wins(client: TransferQueueClient) -> None:
    meta = scattered(client)
    store = client._store
    resolve = store.resolve

    class Overtaken:
        """The store, with a put and a clear by somebody else between resolution and publication."""

        def __getattr__(self, name: str) -> object:
            return getattr(store, name)

        def move(self, *arguments: object, **options: object) -> int:
            client._store = store
            client.put(TensorDict({"x": torch.full((1, COLUMNS), -5)}, [1]), metadata=meta[2])
            client.clear_samples(meta[6])
            return store.move(*arguments, **options)  # type: ignore[arg-type]

    client._store = Overtaken()  # type: ignore[assignment]
    try:
        client.coalesce(meta)
    finally:
        client._store = store
    assert resolve is not None
    rest = meta.select_samples([0, 1, 2, 3, 4, 5, 7])
    assert client.get_data(rest)["x"][:, 0].tolist() == [0, 1, -5, 3, 4, 5, 7]
    with pytest.raises(tq.StaleMetadataError):
        client.get_data(meta)


def test_what_is_missing_is_named(client: TransferQueueClient) -> None:
    meta = scattered(client, 2)
    with pytest.raises(tq.FieldNotReadyError):
        client.coalesce(meta, fields=["never"])
    client.clear_samples(meta)
    with pytest.raises(tq.StaleMetadataError):
        client.coalesce(meta)
    assert client.stats().pending_bytes == 0
