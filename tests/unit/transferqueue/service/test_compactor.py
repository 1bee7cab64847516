"""Rows of sparse blocks move together, and nothing else does."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from tensordict import NonTensorStack, TensorDict

import transferqueue as tq
from tests.race.paused import settled
from tests.support.quiet import without_service
from tests.support.sessions import embedded
from tests.support.versioned_rows import rows, versions_of
from transferqueue import BatchMeta, TransferQueueClient
from transferqueue.service.compactor import SLACK_NBYTES, Compactor

BELOW = 0.25


@pytest.fixture(scope="module")
def session() -> Iterator[tq.Session]:
    with embedded(**{"storage.size": "32MiB"}) as found, without_service(found):
        yield found


@pytest.fixture
def client(session: tq.Session) -> Iterator[TransferQueueClient]:
    yield session.client
    for partition in session.client.get_partition_list():
        session.client.clear_partition(partition)
    settled(session.client)
    figures = session.client._store.stats()
    assert (figures["used_bytes"], figures["headroom_used_bytes"]) == (0, 0)


def figures(client: TransferQueueClient) -> dict[str, int]:
    return client._store.stats()


def compact(client: TransferQueueClient, below: float = BELOW, looks: int = 3) -> int:
    """Looks and steps as the service does, without its pauses. Bytes copied."""
    before = client._store.counts()["compacted_bytes"]
    compactor = Compactor(client._store, below)
    for _ in range(looks):
        compactor._next_look_s = 0.0
        while compactor.tick():
            pass
    client._store.check()
    return client._store.counts()["compacted_bytes"] - before


def keep(client: TransferQueueClient, meta: BatchMeta, kept: Sequence[int]) -> BatchMeta:
    """Clears all rows of `meta` but those at the positions `kept`."""
    client.clear_samples(meta.select_samples([at for at in range(meta.size) if at not in set(kept)]))
    return meta.select_samples(list(kept))


def put(client: TransferQueueClient, numbers: Sequence[int], version: int = 0) -> BatchMeta:
    return client.put(rows(numbers, version), partition_id="p", timeout=0)


def rows_of(column: Any) -> list[torch.Tensor]:
    return list(column.unbind()) if hasattr(column, "unbind") else list(column)


def mebibytes(count: int, value: int, rows: int = 1, width: int = 1 << 20) -> TensorDict:
    return TensorDict({"x": torch.full((rows, count * width // rows), value, dtype=torch.uint8)}, [rows])


def test_the_last_rows_of_many_blocks_move_together(client: TransferQueueClient) -> None:
    """Blocks of 1 MiB with one living row each."""
    left = [keep(client, put(client, range(64 * n, 64 * n + 64)), [n % 64]) for n in range(24)]
    before = figures(client)
    assert before["used_bytes"] > 24 << 20
    copied = compact(client)
    after = figures(client)
    assert after["used_bytes"] == copied < before["used_bytes"] // 50
    assert after["largest_free_extent_bytes"] > before["free_extent_bytes"]
    found = versions_of(client.get_data(BatchMeta.concat(left)))
    assert found == [(64 * n + n % 64, 0) for n in range(24)]


def test_the_bound(client: TransferQueueClient) -> None:
    """Rows cleared in any order: what is used stays below live / 0.25 + slack, and what is copied below a third of what
    was put."""
    chooser = random.Random(7)
    living: list[tuple[int, BatchMeta]] = []
    put_nbytes = copied = 0
    for step in range(40):
        numbers = range(64 * step, 64 * step + 64)
        meta = put(client, numbers)
        put_nbytes += 64 * 2048 * 8
        living += [(number, meta.select_samples([at])) for at, number in enumerate(numbers)]
        chooser.shuffle(living)
        gone, living = living[: len(living) - 64], living[-64:]
        if gone:
            client.clear_samples(BatchMeta.concat([meta for _, meta in gone]))
        copied += compact(client)
        now = figures(client)
        live_nbytes = len(living) * 2048 * 8
        assert now["used_bytes"] <= live_nbytes / BELOW + min(SLACK_NBYTES, now["total_bytes"] // 16), step
    assert 0 < copied <= put_nbytes / 3
    found = versions_of(client.get_data(BatchMeta.concat([meta for _, meta in living])))
    assert found == [(number, 0) for number, _ in living]


def test_every_kind_of_field(client: TransferQueueClient) -> None:
    """Python objects, rows of different shapes, keys and tags; fields put later, in part, by other calls."""
    keys = [f"k{n}" for n in range(32)]
    batch = TensorDict(
        {
            "dense": torch.arange(32 * 8192).view(32, 8192),
            "half": torch.randn(32, 16).to(torch.bfloat16),
            "jagged": torch.nested.nested_tensor([torch.full((n % 9,), n) for n in range(32)], layout=torch.jagged),
            "text": NonTensorStack(*[f"text {n}" * n for n in range(32)]),
            "objects": NonTensorStack(*[{"n": n, "t": torch.full((n % 3,), n)} for n in range(32)]),
            "pickled": NonTensorStack(*[complex(n, 1) for n in range(32)]),
            "stack": NonTensorStack(*[torch.zeros(n % 4 + 1, n % 2 + 1) + n for n in range(32)]),
        },
        [32],
    )
    client.kv_batch_put(keys, "kv", batch, [{"n": n} for n in range(32)])
    later = TensorDict({"dense": -torch.ones(8, 8192, dtype=torch.int64), "late": torch.arange(8)}, [8])
    client.kv_batch_put(keys[:8], "kv", later)
    left = [*keys[5:7], *keys[20:22]]
    client.kv_clear([key for key in keys if key not in left], "kv")
    # Those of 5 and 6 moved to a block of their own; here the others keep a share that is worth to empty.
    before = client.kv_batch_get(
        left, "kv", select_fields=["half", "jagged", "text", "objects", "pickled", "stack", "dense"]
    )
    used = figures(client)["used_bytes"]
    assert compact(client, 0.75) > 0
    assert figures(client)["used_bytes"] < used / 2
    after = client.kv_batch_get(
        left, "kv", select_fields=["half", "jagged", "text", "objects", "pickled", "stack", "dense"]
    )
    assert client.kv_list("kv")["kv"] == {key: {"n": int(key[1:])} for key in left}
    for name in ("dense", "half"):
        assert torch.equal(after[name], before[name])
    for name in ("jagged", "stack"):
        for one, other in zip(rows_of(after[name]), rows_of(before[name]), strict=True):
            assert torch.equal(one, other)
    for name in ("text", "pickled"):
        assert list(after[name]) == list(before[name])
    for one, other in zip(list(after["objects"]), list(before["objects"]), strict=True):
        assert one["n"] == other["n"]
        assert torch.equal(one["t"], other["t"])
    assert (after["dense"][:2] == -1).all()
    assert client.kv_batch_get(left[:2], "kv", select_fields=["late"])["late"].tolist() == [5, 6]


def test_a_small_row_does_not_keep_a_large_one(client: TransferQueueClient) -> None:
    """Half of the cells live, and a ten-thousandth of the bytes: it is bytes that count, also of single fields."""
    ragged = torch.nested.nested_tensor(
        [torch.zeros(1 << 20, dtype=torch.int64), torch.ones(8, dtype=torch.int64)], layout=torch.jagged
    )
    skewed = client.put(TensorDict({"r": ragged}, [2]), partition_id="p")
    small = keep(client, skewed, [1])
    wide = client.put(TensorDict({"big": torch.zeros(4, 1 << 20), "n": torch.arange(4)}, [4]), partition_id="q")
    client.put(TensorDict({"big": torch.ones(4, 2)}, [4]), metadata=wide)
    assert figures(client)["used_bytes"] > 24 << 20
    compact(client)
    assert figures(client)["used_bytes"] < 8192
    assert client.get_data(small)["r"][0].tolist() == [1] * 8
    found = client.get_data(wide)
    assert (found["n"].tolist(), found["big"].tolist()) == ([0, 1, 2, 3], [[1, 1]] * 4)


def test_a_large_row_that_lives_is_not_moved_in_vain(client: TransferQueueClient) -> None:
    """One cell of a thousand, and nearly all of the bytes."""
    sizes = [1 << 20] + [8] * 999
    ragged = torch.nested.nested_tensor([torch.zeros(n, dtype=torch.int64) for n in sizes], layout=torch.jagged)
    keep(client, client.put(TensorDict({"r": ragged}, [1000]), partition_id="p"), [0])
    assert compact(client) == 0


def test_what_somebody_reads_is_left_until_it_is_dropped(client: TransferQueueClient) -> None:
    left = keep(client, put(client, range(600)), range(8))
    view = client.get_data(left)
    assert compact(client) == 0
    view["x"].fill_(7)
    del view
    assert compact(client) > 0
    assert figures(client)["used_bytes"] < 1 << 18
    assert versions_of(client.get_data(left)) == [(n, 0) for n in range(8)]


def test_a_block_that_is_emptying_is_left_to_itself(client: TransferQueueClient) -> None:
    """While there is room; where room is scarce, it is not."""
    meta = put(client, range(600))
    left = keep(client, meta, range(100))
    compactor = Compactor(client._store, BELOW)
    for gone in range(3):
        compactor._next_look_s = 0.0
        assert not compactor.tick()
        client.clear_samples(left.select_samples([gone]))
    client.put(mebibytes(20, 1), partition_id="q")
    compactor._next_look_s = 0.0
    assert compactor.tick()
    assert versions_of(client.get_data(left.select_samples([50]))) == [(50, 0)]


def test_rows_that_go_or_change_between_the_look_and_the_move(client: TransferQueueClient, monkeypatch: Any) -> None:
    left = keep(client, put(client, range(600)), range(40, 60))
    compactor = Compactor(client._store, BELOW)
    seen: list[int] = []
    empty = compactor._empty

    def meanwhile(plan: Any, blocks: Any) -> None:
        seen.extend(blocks.tolist())
        client.clear_samples(left.select_samples([0, 7]))
        client.put(rows([43], 1), metadata=left.select_samples([3]))
        client.put(TensorDict({"s": torch.ones(1)}, [1]), metadata=left.select_samples([4]))  # another type
        empty(plan, blocks)

    monkeypatch.setattr(compactor, "_empty", meanwhile)
    for _ in range(2):
        compactor._next_look_s = 0.0
        while compactor.tick():
            pass
    assert seen
    rest = [at for at in range(20) if at not in (0, 4, 7)]
    assert versions_of(client.get_data(left.select_samples(rest))) == [(40 + at, int(at == 3)) for at in rest]
    changed = client.get_data(left.select_samples([4]))
    assert changed["s"].tolist() == [1.0]


# -- a put that finds no room ------------------------------------------------------------------------------------------


def test_a_store_full_to_the_last_byte_with_one_row_of_each_block_alive(client: TransferQueueClient) -> None:
    """No room for a copy anywhere but in the headroom; and no service."""
    left = [client.put(mebibytes(1, n, rows=64), partition_id="p", timeout=0) for n in range(24)]
    # Each as large as the largest free piece: a larger one would have the others moved to make room.
    while size := figures(client)["largest_free_extent_bytes"]:
        client.put(TensorDict({"x": torch.zeros(1, size, dtype=torch.uint8)}, [1]), partition_id="p", timeout=0)
    left = [keep(client, meta, [at]) for at, meta in enumerate(left)]
    assert figures(client)["free_bytes"] == 0
    client.put(mebibytes(16, 255), partition_id="q", timeout=0)
    found = client.get_data(BatchMeta.concat(left))["x"]
    assert (found == torch.arange(24, dtype=torch.uint8).unsqueeze(1)).all()
    client.clear_partition("q")
    compact(client)
    assert figures(client)["headroom_used_bytes"] == 0, "what was set down in the headroom has left it"


def test_what_would_not_be_enough_is_not_copied(client: TransferQueueClient) -> None:
    keep(client, client.put(mebibytes(8, 0, rows=64), partition_id="p"), [3])
    client.put(mebibytes(20, 0), partition_id="p")
    before = client._store.counts()["compacted_bytes"]
    with pytest.raises(tq.StorageFullError) as error:
        client.put(mebibytes(16, 0), partition_id="p", timeout=0)
    assert error.value.wanted_bytes == 16 << 20
    assert client._store.counts()["compacted_bytes"] == before


def test_a_put_empties_what_the_service_would_leave(client: TransferQueueClient) -> None:
    """Half of every block lives: more than the service minds."""
    left = [keep(client, put(client, range(64 * n, 64 * n + 64)), range(0, 64, 2)) for n in range(28)]
    assert compact(client) == 0
    client.put(mebibytes(8, 1), partition_id="q", timeout=0)
    found = versions_of(client.get_data(BatchMeta.concat(left)))
    assert found == [(64 * n + at, 0) for n in range(28) for at in range(0, 64, 2)]


def test_free_pieces_are_joined_for_a_put_that_none_of_them_holds(client: TransferQueueClient) -> None:
    """Every second MiB is free and every other one lives whole."""
    metas = [client.put(mebibytes(1, n), partition_id="p", timeout=0) for n in range(28)]
    client.clear_samples(BatchMeta.concat(metas[::2]))
    before = figures(client)
    assert before["used_bytes"] == before["live_bytes"]
    large = client.put(mebibytes(14, 255), partition_id="q", timeout=0)
    client._store.check()
    for n, meta in enumerate(metas[1::2]):
        assert (client.get_data(meta)["x"] == 2 * n + 1).all()
    assert (client.get_data(large)["x"] == 255).all()


def test_a_row_amid_free_room_makes_way_for_a_put_of_nearly_all(client: TransferQueueClient) -> None:
    """Half of the store is free before it and nearly half behind; no whole number of these pieces is the put's size."""
    first = client.put(mebibytes(15, 1), partition_id="p", timeout=0)
    small = client.put(TensorDict({"x": torch.tensor([[7]])}, [1]), partition_id="q", timeout=0)
    client.clear_samples(first)
    assert figures(client)["used_bytes"] < 1 << 16
    large = client.put(mebibytes(30, 255), partition_id="p", timeout=0)
    client._store.check()
    assert client.get_data(small)["x"].tolist() == [[7]]
    assert (client.get_data(large)["x"] == 255).all()


def test_what_somebody_reads_is_in_the_way(client: TransferQueueClient) -> None:
    """The piece is made elsewhere, or not at all."""
    metas = [client.put(mebibytes(1, n), partition_id="p", timeout=0) for n in range(30)]
    views = [client.get_data(meta) for meta in metas[1::8]]
    client.clear_samples(BatchMeta.concat(metas[::2]))
    client.put(mebibytes(6, 255), partition_id="q", timeout=0)
    with pytest.raises(tq.StorageFullError):
        client.put(mebibytes(9, 255), partition_id="q", timeout=0)
    for n, view in enumerate(views):
        assert (view["x"] == 8 * n + 1).all()
    client._store.check()
    assert client.stats().pending_bytes == 0
    del views, view
    client.put(mebibytes(9, 255), partition_id="q", timeout=0)
