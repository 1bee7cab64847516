"""Room: what is used, given back, refused and waited for."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tensordict import TensorDict

import transferqueue as tq
from tests.support.sessions import wait_for
from transferqueue import TransferQueueClient

pytestmark = pytest.mark.timeout(120)
MIB = 1 << 20


def megabytes(count: int, rows: int = 1) -> TensorDict:
    return TensorDict({"x": torch.zeros(rows, count * MIB // rows, dtype=torch.uint8)}, [rows])


@pytest.fixture(autouse=True)
def nothing_in_use_before_and_after(client: TransferQueueClient) -> Any:
    def settled() -> bool:
        gc.collect()
        client._store.reclaim()
        stats = client.stats()
        return stats.used_bytes + stats.retired_bytes + stats.pending_bytes + stats.leased_bytes == 0

    wait_for(settled, what="an empty store")
    yield
    for partition in client.get_partition_list():
        client.clear_partition(partition)
    wait_for(settled, what="an empty store")


def test_clear_gives_everything_back(client: TransferQueueClient, until_freed: Callable[[], None]) -> None:
    for _ in range(3):
        metas = [client.put(megabytes(8), partition_id="p") for _ in range(6)]
        stats = client.stats()
        assert stats.used_bytes == stats.live_bytes == 48 * MIB
        assert stats.free_bytes == 16 * MIB
        client.clear_samples(metas[0])
        client.clear_partition("p")
        until_freed()
        assert client.stats().used_bytes == 0


def test_a_view_keeps_its_block_until_it_dies(client: TransferQueueClient, until_freed: Callable[[], None]) -> None:
    view = client.get_data(client.put(megabytes(8), partition_id="p"))["x"]
    assert client.stats().leased_bytes == 8 * MIB
    client.clear_partition("p")
    until_freed()
    client._store.reclaim()
    stats = client.stats()
    assert (stats.used_bytes, stats.retired_bytes) == (0, 8 * MIB)
    assert [entry.leased_bytes for entry in stats.clients if entry.leases] == [8 * MIB]
    del view
    client._store.reclaim()
    assert client.stats().retired_bytes == 0


def test_a_view_in_a_cycle_is_freed_with_it_and_reported_until_then(client: TransferQueueClient) -> None:
    gc.disable()
    try:
        cycle: dict[str, Any] = {"view": client.get_data(client.put(megabytes(8), partition_id="p"))["x"]}
        cycle["self"] = cycle
        del cycle
        assert client.stats().leased_bytes == 8 * MIB
        assert [entry.leases for entry in client.stats().clients if entry.leases] != []
    finally:
        gc.enable()
    gc.collect()
    assert client.stats().leased_bytes == 0


def test_a_full_store_refuses_a_put_as_a_whole(client: TransferQueueClient, until_freed: Callable[[], None]) -> None:
    first = client.put(megabytes(40, rows=4), partition_id="p")
    with pytest.raises(tq.StorageFullError) as caught:
        client.put(megabytes(32, rows=4), partition_id="q", timeout=0)
    error = caught.value
    assert (error.wanted_bytes, error.total_bytes, error.used_bytes) == (32 * MIB, 64 * MIB, 40 * MIB)
    assert error.free_bytes == 24 * MIB
    text = str(error).removeprefix(f"{error.node}: ")  # of a session of several nodes
    assert text.startswith("no room for 32.0 MiB (33554432 B). Of 64.0 MiB (67108864 B) in all, used: 40.0 MiB")
    assert "; free: 24.0 MiB (25165824 B). The free room is in pieces of at most" in text
    assert isinstance(error, MemoryError)
    assert client.get_partition_list() == ["p"]
    assert client.stats().pending_bytes == 0
    client.clear_samples(first)
    until_freed()
    assert client.put(megabytes(60, rows=4), partition_id="q", timeout=0).is_ready


def test_what_can_never_fit_is_refused_at_once(client: TransferQueueClient) -> None:
    with pytest.raises(tq.StorageFullError, match=r"It can never fit: make storage\.size larger"):
        client.put(megabytes(65), partition_id="p", timeout=None)


@pytest.mark.parametrize("how", ["clear", "drop"])
def test_a_put_waits_for_room(client: TransferQueueClient, how: str) -> None:
    meta = client.put(megabytes(40), partition_id="p")
    held: list[Any] = [client.get_data(meta)]
    if how == "drop":
        client.clear_partition("p")
    else:
        held.clear()
    with pytest.raises(tq.StorageFullError):
        client.put(megabytes(40), partition_id="q", timeout=0.2)
    action = held.clear if how == "drop" else lambda: client.clear_partition("p")
    later = threading.Timer(0.3, action)
    later.start()
    assert client.put(megabytes(40), partition_id="q", timeout=60).is_ready
    later.join()


def test_a_fast_producer_is_slowed_down_to_its_consumer(client: TransferQueueClient) -> None:
    """Four times the store's size goes through it; nothing is lost and nothing refused."""

    def produce() -> None:
        for number in range(32):
            data = TensorDict({"x": torch.full((1, 8 * MIB), number, dtype=torch.uint8)}, [1])
            client.put(data, partition_id="stream", timeout=100)

    producer = threading.Thread(target=produce)
    producer.start()
    seen = []
    for _ in range(32):
        meta = client.get_meta("x", 1, "stream", task_name="t", timeout=100)
        seen.append(int(client.get_data(meta)["x"][0, -1]))
        client.clear_samples(meta)
    producer.join()
    assert sorted(seen) == list(range(32))


def test_trim_gives_warm_memory_back(client: TransferQueueClient, until_freed: Callable[[], None]) -> None:
    client.put(megabytes(32), partition_id="p")
    client.clear_partition("p")
    until_freed()
    assert client.stats().warm_bytes >= 32 * MIB
    assert client.trim() >= 32 * MIB
    assert client.stats().warm_bytes == 0
    data = TensorDict({"x": torch.full((1, 32 * MIB), 9, dtype=torch.uint8)}, [1])
    assert client.get_data(client.put(data, partition_id="p"))["x"].unique().tolist() == [9]


def test_rows_are_counted_by_state(client: TransferQueueClient, client_at_home: TransferQueueClient) -> None:
    meta = client.put(TensorDict({"x": torch.arange(4)}, [4]), partition_id="p")
    client.put(TensorDict({"y": torch.arange(1)}, [1]), metadata=meta.select_samples([0]))
    client.get_meta(["x"], 2, "p", mode="insert")
    client.put(TensorDict({"x": torch.arange(3)}, [3]), partition_id="q")
    assert client.stats("p").rows == {"total": 6, "ready": 1, "partial": 3, "empty": 2, "unconsumed": 4}
    # Without a partition: those whose home the node is.
    assert client_at_home.stats().rows == {"total": 9, "ready": 4, "partial": 3, "empty": 2, "unconsumed": 7}
    with pytest.raises(tq.PartitionNotFoundError):
        client.stats("nowhere")
    client.clear_partition("p")


def test_puts_and_gets_are_counted(client: TransferQueueClient) -> None:
    before = client.stats()
    meta = client.put(TensorDict({"x": torch.arange(4)}, [4]), partition_id="p")
    client.get_data(meta)
    client.get_data(meta)
    after = client.stats()
    assert after.puts == before.puts + 1
    assert after.gets == before.gets + 2


def test_memory_of_gathers_is_reported_and_trimmed(client: TransferQueueClient) -> None:
    metas = [client.put(megabytes(2), partition_id="p") for _ in range(2)]
    meta = tq.BatchMeta.concat(metas).select_samples([1, 0])
    client.trim()
    assert client.stats().gather_pool_bytes == 0
    gathered = client.get_data(meta)["x"]
    assert client.stats().gather_pool_bytes == 0  # in use
    del gathered
    assert client.stats().gather_pool_bytes == 4 * MIB
    address = client.get_data(meta)["x"].data_ptr()
    assert client.get_data(meta)["x"].data_ptr() == address  # the same pages, warm
    client.trim()
    assert client.stats().gather_pool_bytes == 0
