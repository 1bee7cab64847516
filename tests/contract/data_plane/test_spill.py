"""A working set larger than memory: rows on disk read like rows in memory, whatever is done with them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict

import transferqueue as tq
from tests.support.scrape import scrape
from tests.support.sessions import Forked, embedded, wait_for
from tests.support.space import is_settled
from tests.support.versioned_rows import rows, versions_of
from transferqueue.errors import CorruptSegmentError

pytestmark = pytest.mark.timeout(180)

MIB = 1 << 20
MEMORY = 32 * MIB
DISK = 192 * MIB
READS = {"cow": {}, "shared": {"mode": "shared"}, "copy": {"mode": "copy"}}


@pytest.fixture
def session(tmp_path: Path) -> Iterator[tq.Session]:
    """32 MiB of memory, 192 MiB of disk, nothing spilled ahead."""
    options = {"storage.size": MEMORY, "spill.dir": str(tmp_path), "spill.size": DISK, "spill.keep_free": 0}
    with embedded(**options) as found:
        yield found
    assert list(tmp_path.iterdir()) == []


def batch(value: int, nbytes: int = MIB) -> TensorDict:
    """Two rows; every element follows from `value` and its place."""
    columns = nbytes // 16
    x = torch.arange(2 * columns, dtype=torch.int64).view(2, columns) * (value + 1)
    return TensorDict({"x": x, "name": torch.tensor([value, value])}, [2])


def spilled(session: tq.Session, meta: tq.BatchMeta) -> bool:
    """Whether any of the rows lies on disk."""
    indexes = meta.index_array
    resolved = session.client._store.resolve(meta.partition_ids[0], indexes=indexes, fields=None, lease=False)
    return any(resolved.block_spilled(number) for number in range(resolved.n_blocks))


@pytest.mark.parametrize("times", [2, 5])
def test_so_many_times_the_memory_flows_through(session: tq.Session, tmp_path: Path, times: int) -> None:
    client = session.client
    metas = [client.put(batch(value), partition_id="p", timeout=30) for value in range(times * MEMORY // MIB)]
    stats = client.stats()
    each = (stats.used_bytes + stats.spilled_bytes) // len(metas)
    assert stats.used_bytes + stats.spilled_bytes == each * len(metas)
    assert each >= MIB
    assert stats.used_bytes + stats.free_bytes == stats.total_bytes == MEMORY
    assert stats.spilled_bytes + stats.spill_free_bytes == stats.spill_total_bytes == DISK
    assert stats.spilled_bytes >= (times - 1) * MEMORY
    assert stats.live_bytes == stats.used_bytes
    file = next(tmp_path.iterdir())
    assert file.stat().st_blocks * 512 >= stats.spill_reserved_bytes >= stats.spilled_bytes
    for read in READS.values():
        for value, meta in enumerate(metas):
            found = client.get_data(meta, **read)
            assert torch.equal(found["x"], batch(value)["x"])
            assert found["name"].tolist() == [value, value]
    del found
    # One gather over both regions, in an order that mixes them.
    order = [value * 7 % len(metas) for value in range(0, len(metas), 3)]
    mixed = client.get_data(tq.BatchMeta.concat([metas[value] for value in order]))
    assert mixed["name"].tolist() == [value for value in order for _ in range(2)]
    for at, value in enumerate(order):
        assert torch.equal(mixed["x"][2 * at : 2 * at + 2], batch(value)["x"])
    del mixed
    client.clear_partition("p")
    assert is_settled(client._store)
    assert (client.stats().free_bytes, client.stats().spill_free_bytes) == (MEMORY, DISK)
    assert client.trim() >= stats.spill_reserved_bytes
    assert file.stat().st_blocks * 512 < MIB


def test_what_is_written_into_a_view_of_a_spilled_row_reaches_nobody(session: tq.Session) -> None:
    client = session.client
    meta = client.put(batch(1), partition_id="p")
    client._store.spill(MIB)
    assert spilled(session, meta)
    view = client.get_data(meta)["x"]
    view += 5
    assert torch.equal(view, batch(1)["x"] + 5)
    assert torch.equal(client.get_data(meta)["x"], batch(1)["x"])
    held = client.get_data(meta)["x"]
    client.clear_partition("p")
    others = [client.put(batch(value), partition_id="q", timeout=30) for value in range(2, 40)]
    assert torch.equal(held, batch(1)["x"])
    assert client.stats().spill_retired_bytes > 0
    del view, held
    for value, other in enumerate(others, 2):
        assert torch.equal(client.get_data(other)["x"], batch(value)["x"])


def test_keys_tags_overwrites_and_clears_of_spilled_rows(session: tq.Session) -> None:
    client = session.client
    keys = [f"k{number}" for number in range(8)]
    client.kv_batch_put(keys, "p", rows(range(8), 1), [{"n": number} for number in range(8)])
    client._store.spill(MIB)
    assert versions_of(client.kv_batch_get(keys[::-1], "p")) == [(number, 1) for number in reversed(range(8))]
    client.kv_batch_put(keys[2:4], "p", rows([2, 3], 2))
    client.kv_clear([keys[7]], "p")
    expected = [(0, 1), (1, 1), (2, 2), (3, 2), (4, 1), (5, 1), (6, 1)]
    assert versions_of(client.kv_batch_get(keys[:7], "p")) == expected
    client._store.spill(MIB)
    assert versions_of(client.kv_batch_get(keys[:7], "p")) == expected
    assert client.kv_list("p")["p"]["k4"] == {"n": 4}
    client._store.check()


def test_coalesce_brings_rows_back_to_memory(session: tq.Session) -> None:
    client = session.client
    meta = tq.BatchMeta.concat([client.put(rows([number], 1), partition_id="p") for number in range(16)])
    client._store.spill(MIB)
    assert spilled(session, meta)
    client.coalesce(meta)
    assert not spilled(session, meta)
    assert versions_of(client.get_data(meta)) == [(number, 1) for number in range(16)]
    assert is_settled(client._store)
    client.clear_partition("p")
    assert client.stats().spilled_bytes == 0


def test_consumption_and_claims_of_spilled_rows(session: tq.Session) -> None:
    client = session.client
    for number in range(6):
        client.put(rows([number], 1), partition_id="p")
    client._store.spill(MIB)
    meta = client.get_meta(["x", "r", "s", "n"], 4, "p", task_name="train")
    assert [number for number, _ in versions_of(client.get_data(meta))] == [0, 1, 2, 3]
    assert client.stats("p").rows["unconsumed"] == 2
    client._store.spill(MIB)
    rest = client.get_meta(["x", "r", "s", "n"], 2, "p", task_name="train")
    assert [number for number, _ in versions_of(client.get_data(rest))] == [4, 5]


def test_a_checkpoint_of_a_working_set_larger_than_memory(session: tq.Session, tmp_path_factory: Any) -> None:
    client = session.client
    metas = [client.put(batch(value), partition_id="p", timeout=30) for value in range(48)]
    directory = tmp_path_factory.mktemp("checkpoint") / "all"
    client.save_checkpoint(directory)
    client.clear_partition("p")
    client.load_checkpoint(directory)
    for value, meta in enumerate(metas):
        assert torch.equal(client.get_data(meta)["x"], batch(value)["x"])
    stats = client.stats()
    assert stats.spilled_bytes > 0
    # Over rows that stand: both are there until the switch.
    client.load_checkpoint(directory)
    for value, meta in enumerate(metas):
        assert torch.equal(client.get_data(meta)["x"], batch(value)["x"])
    assert is_settled(client._store)
    assert client.stats().used_bytes + client.stats().spilled_bytes == stats.used_bytes + stats.spilled_bytes


def test_many_producers_and_readers_share_a_store_that_spills(session: tq.Session) -> None:
    client = session.client
    failures: list[str] = []

    def work(number: int) -> None:
        try:
            metas = [(value, client.put(batch(value), partition_id=f"p{number}", timeout=60)) for value in range(20)]
            for value, meta in metas:
                if not torch.equal(client.get_data(meta)["x"], batch(value)["x"]):
                    failures.append(f"{number}: {value}")
        except BaseException as error:
            failures.append(repr(error))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    client._store.check()


def test_the_service_moves_ahead_of_need_and_says_so(tmp_path: Path) -> None:
    options = {"storage.size": MEMORY, "spill.dir": str(tmp_path), "spill.size": DISK, "spill.keep_free": 16 * MIB}
    with embedded(**options, **{"metrics.port": 0}) as session:
        client = session.client
        for value in range(28):
            client.put(batch(value), partition_id="p", timeout=30)
        wait_for(lambda: client.stats().free_bytes >= 16 * MIB, what="spilling ahead")
        assert client._store.counts()["room_timeouts"] == 0
        stats = client.stats()
        found = scrape(tq.get_metrics_endpoint())
        assert found.value("storage_spilled_bytes") == stats.spilled_bytes > 0
        assert found.value("storage_spill_total_bytes") == DISK
        assert found.value("spilled_bytes_total") >= stats.spilled_bytes
        assert found.value("spilled_blocks_total") >= 12


def test_a_put_that_fits_nowhere_says_what_lies_where(tmp_path: Path) -> None:
    options = {"storage.size": 8 * MIB, "spill.dir": str(tmp_path), "spill.size": 4 * MIB, "spill.keep_free": 0}
    with embedded(**options) as session:
        client = session.client
        with pytest.raises(tq.StorageFullError, match=r"on disk: .* of 4\.0 MiB") as caught:
            fill(client)
        error = caught.value
        assert error.details["spilled_bytes"] == client.stats().spilled_bytes
        assert error.details["spill_total_bytes"] == 4 * MIB
        assert error.details["spill_free_bytes"] == client.stats().spill_free_bytes < MIB // 2
        assert error.free_bytes == client.stats().free_bytes
        client.clear_partition("p")
        client.put(batch(0, 6 * MIB), partition_id="p", timeout=0)


def fill(client: tq.TransferQueueClient) -> None:
    for value in range(40):
        client.put(batch(value, MIB // 2), partition_id="p", timeout=0)


def test_another_process_reads_and_spills(tmp_path: Path) -> None:
    reader = Forked(read_and_spill)
    with embedded(**{"storage.size": MEMORY, "spill.dir": str(tmp_path), "spill.size": DISK}) as session:
        another_process(session, reader)


def another_process(session: tq.Session, reader: Forked) -> None:
    client = session.client
    client.kv_batch_put(["a", "b"], "p", batch(3))
    client._store.spill(MIB)
    reader.say(session.name)
    assert reader.hear() == "read"
    assert reader.join() == 0
    assert client.stats().used_bytes == 0
    assert torch.equal(client.kv_batch_get(["c", "d"], "p")["x"], batch(4)["x"])


def read_and_spill(connection: Connection) -> None:
    with tq.attach(connection.recv()) as session:
        client = session.client
        assert torch.equal(client.kv_batch_get(["a", "b"], "p")["x"], batch(3)["x"])
        client.kv_batch_put(["c", "d"], "p", batch(4))
        client._store.spill(MIB)
        connection.send("read")


def test_a_spill_file_that_was_cut_is_named(session: tq.Session, tmp_path: Path) -> None:
    client = session.client
    lost = client.put(batch(1), partition_id="p")
    client._store.spill(MIB)
    kept = client.put(batch(2), partition_id="p")
    path = next(tmp_path.iterdir())
    with path.open("r+b") as file:
        file.truncate(100_000)
    with pytest.raises(CorruptSegmentError, match="spill file"):
        client.get_data(lost)
    assert torch.equal(client.get_data(kept)["x"], batch(2)["x"])
