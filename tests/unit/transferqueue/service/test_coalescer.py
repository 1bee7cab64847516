"""Rows that are gathered again and again become one block without anybody asking; rows that are not, do not."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch
from tensordict import TensorDict

import transferqueue as tq
from tests.support.sessions import embedded, wait_for
from transferqueue.service.coalescer import GATHERED_NBYTES, Coalescer

pytestmark = pytest.mark.timeout(60)
ROWS, COLUMNS = 16, GATHERED_NBYTES // 8 // 8


def scattered(client: tq.TransferQueueClient, keys: list[str] | None = None) -> tq.BatchMeta:
    rows = [TensorDict({"x": torch.full((1, COLUMNS), row)}, batch_size=[1]) for row in range(ROWS)]
    for key, row in zip(keys or [], rows, strict=bool(keys)):
        client.kv_batch_put([key], "p", row)
    if keys:
        return client.kv_retrieve_meta(keys, "p")
    return tq.BatchMeta.concat([client.put(row, partition_id="p") for row in rows])


def viewed(client: tq.TransferQueueClient, meta: tq.BatchMeta) -> int:
    batch, report = client.get_data_with_report(meta)
    assert batch["x"][:, 0].tolist() == list(range(ROWS))
    assert batch["x"][:, -1].tolist() == list(range(ROWS))
    return report.bytes_viewed


def rewritten(session: tq.Session) -> int:
    return session.service._coalescer.rewritten


def settled(session: tq.Session) -> bool:
    coalescer = session.service._coalescer
    return not coalescer._queue


def test_rows_that_are_gathered_often_become_views() -> None:
    with embedded(**{"service.coalesce_after": 3}) as session:
        client = tq.get_client()
        meta = scattered(client)
        assert [viewed(client, meta) for _ in range(2)] == [0, 0]
        time.sleep(0.05)
        assert rewritten(session) == 0
        viewed(client, meta)
        wait_for(lambda: rewritten(session) == ROWS, what="the rewriting")
        assert viewed(client, meta) == ROWS * COLUMNS * 8
        assert rewritten(session) == ROWS


def test_reads_by_key_count_too() -> None:
    with embedded(**{"service.coalesce_after": 2}) as session:
        client = tq.get_client()
        keys = [f"key {row}" for row in range(ROWS)]
        meta = scattered(client, keys)
        for _ in range(2):
            client.kv_batch_get(keys, "p")
        wait_for(lambda: rewritten(session) == ROWS, what="the rewriting")
        assert viewed(client, meta) == ROWS * COLUMNS * 8


def test_other_rows_other_fields_and_copies_on_request_are_not_the_same_read() -> None:
    with embedded(**{"service.coalesce_after": 2}) as session:
        client = tq.get_client()
        meta = scattered(client)
        viewed(client, meta)
        client.get_data(meta[1:])
        client.get_data(meta.select_samples(list(range(ROWS - 1, -1, -1))))
        for _ in range(4):
            client.get_data(meta, mode="copy")
        assert settled(session)
        assert rewritten(session) == 0


def test_never_when_configured_so() -> None:
    with embedded(**{"service.coalesce_after": 0}) as session:
        client = tq.get_client()
        meta = scattered(client)
        for _ in range(8):
            assert viewed(client, meta) == 0
        assert settled(session)


def test_small_reads_are_left_alone() -> None:
    with embedded(**{"service.coalesce_after": 1}) as session:
        client = tq.get_client()
        rows = [client.put(TensorDict({"x": torch.zeros(1, 64)}, batch_size=[1]), partition_id="p") for _ in range(8)]
        for _ in range(4):
            client.get_data(tq.BatchMeta.concat(rows))
        assert settled(session)
        assert rewritten(session) == 0


def test_it_never_takes_the_room_that_puts_may_want() -> None:
    # What is stored takes more than a quarter of what is left: unasked, a copy of it would be in the way.
    size = int(ROWS * COLUMNS * 8 * 2.5)
    with embedded(**{"service.coalesce_after": 1, "storage.size": size}) as session:
        client = tq.get_client()
        meta = scattered(client)
        viewed(client, meta)
        wait_for(lambda: settled(session), what="the look")
        session.service.stop()
        assert rewritten(session) == 0
        client.coalesce(meta)  # asked for, it is done
        assert viewed(client, meta) == ROWS * COLUMNS * 8


def test_rows_that_are_cleared_meanwhile_are_let_go() -> None:
    with embedded(**{"service.coalesce_after": 0}) as session:
        client = tq.get_client()
        meta = scattered(client)
        coalescer = Coalescer(session.attachment.store, after=1)
        client.clear_samples(meta[:1])
        coalescer.note_gather("p", np.asarray(meta.global_indexes), ["x"], GATHERED_NBYTES)
        wait_for(lambda: not coalescer._queue, what="the look")
        coalescer.stop()
        assert coalescer.rewritten == 0
        assert client.stats().pending_bytes == 0
        coalescer.note_gather("p", np.asarray(meta.global_indexes[1:]), ["x"], GATHERED_NBYTES)
        assert not coalescer._queue  # stopped


def test_only_the_latest_reads_are_remembered() -> None:
    with embedded() as session:
        coalescer = Coalescer(session.attachment.store, after=2)
        for number in range(200):
            coalescer.note_gather("p", np.arange(number, number + 4), ["x"], GATHERED_NBYTES)
        assert len(coalescer._gathers) == 64
        coalescer.note_gather("p", np.arange(0, 4), ["x"], GATHERED_NBYTES)
        assert not coalescer._queue  # forgotten long ago, so this was its first
        coalescer.stop()


def test_reads_of_ever_other_rows_do_not_fill_the_store() -> None:
    """Blocks whose rows moved in part keep their room: moving stops while that is a quarter of what rows name."""
    with embedded(**{"service.coalesce_after": 2}) as session:
        client = tq.get_client()
        rows = torch.arange(64 * COLUMNS).view(64, COLUMNS)  # 8 MiB in one block
        meta = client.put(TensorDict({"x": rows}, [64]), partition_id="p")
        for start in range(40):
            chosen = [(start + 3 * row) % 64 for row in range(16)]
            for _ in range(2):
                assert torch.equal(client.get_data(meta.select_samples(chosen))["x"], rows[chosen])
            wait_for(lambda: settled(session), what="the rewriting")
        time.sleep(0.2)
        stats = client.stats()
        assert rewritten(session) > 0
        assert stats.used_bytes - stats.live_bytes <= stats.live_bytes // 4 + 2 * 16 * COLUMNS * 8
