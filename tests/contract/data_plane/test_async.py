"""The asynchronous forms: every public call has one, and any loop may use it."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from tensordict import TensorDict

import transferqueue as tq
from transferqueue import TransferQueueClient

pytestmark = pytest.mark.timeout(120)


def numbers(rows: int = 4) -> TensorDict:
    return TensorDict({"x": torch.arange(rows)}, [rows])


async def use_all_calls(client: TransferQueueClient, partition: str) -> list[int]:
    meta = await client.async_put(numbers(), partition_id=partition)
    keyed = await client.async_kv_put("k", partition, {"x": torch.tensor(9)}, {"tag": 1})
    assert (await client.async_kv_list(partition))[partition]["k"] == {"tag": 1}
    assert (await client.async_kv_batch_get_by_meta(keyed))["x"].tolist() == [9]
    fetched = await client.async_get_meta("x", 5, partition, task_name="t")
    found = await client.async_get_data(fetched)
    await client.async_clear_samples(meta)
    await client.async_kv_clear("k", partition)
    return found["x"].tolist()  # type: ignore[no-any-return]


def test_the_path_once(client: TransferQueueClient) -> None:
    assert asyncio.run(use_all_calls(client, "p")) == [0, 1, 2, 3, 9]


def test_loops_in_a_row_and_at_once(client: TransferQueueClient) -> None:
    for number in range(3):
        assert len(asyncio.run(use_all_calls(client, f"p{number}"))) == 5
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda number: asyncio.run(use_all_calls(client, f"q{number}")), range(2)))
    assert [len(answer) for answer in answers] == [5, 5]


def test_blocking_calls_on_a_running_loop_in_a_fresh_thread_and_after_a_loop(client: TransferQueueClient) -> None:
    async def inside() -> tq.BatchMeta:
        return client.put(numbers(), partition_id="p")

    meta = asyncio.run(inside())
    assert client.get_data(meta)["x"].tolist() == [0, 1, 2, 3]
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(client.get_data, meta).result()["x"].tolist() == [0, 1, 2, 3]


def test_every_public_call_has_an_asynchronous_form_with_the_same_arguments(client: TransferQueueClient) -> None:
    kind = type(client)
    names = [
        name
        for name, member in inspect.getmembers(kind, inspect.isfunction)
        # `count_method` adds to words in memory: nothing in it waits.
        if not name.startswith(("_", "async_")) and name not in ("close", "count_method")
    ]
    assert len(names) > 20
    for name in names:
        derived = getattr(kind, f"async_{name}")
        assert inspect.iscoroutinefunction(derived)
        assert inspect.signature(derived).parameters.keys() == inspect.signature(getattr(kind, name)).parameters.keys()


def test_waiters_wait_together(client: TransferQueueClient) -> None:
    async def main() -> list[Any]:
        waits = [client.async_wait("p", fields="x", keys=f"k{number}", timeout=60) for number in range(64)]
        tasks = [asyncio.create_task(wait) for wait in waits]
        await asyncio.sleep(0.3)
        for number in range(64):
            await client.async_kv_put(f"k{number}", "p", {"x": torch.tensor(number)})
        return await asyncio.gather(*tasks)

    assert [meta.size for meta in asyncio.run(main())] == [1] * 64


def test_an_asynchronous_put_waits_for_room_beside_the_loop(client: TransferQueueClient) -> None:
    big = TensorDict({"x": torch.zeros(1, 40 << 20, dtype=torch.uint8)}, [1])

    async def main() -> int:
        meta = await client.async_put(big, partition_id="p")
        with pytest.raises(tq.StorageFullError):
            await client.async_put(big, partition_id="p", timeout=0.2)
        second = asyncio.create_task(client.async_put(big, partition_id="p", timeout=60))
        await asyncio.sleep(0.3)
        assert not second.done()
        await client.async_clear_samples(meta)
        return (await second).size  # type: ignore[no-any-return]

    assert asyncio.run(main()) == 1


def test_a_busy_loop_makes_no_false_timeout_and_no_double_write(client: TransferQueueClient) -> None:
    async def main() -> tq.BatchMeta:
        pending = asyncio.create_task(client.async_put(numbers(), partition_id="p", timeout=0.5))
        await asyncio.sleep(0)
        time.sleep(1.5)
        return await pending  # type: ignore[no-any-return]

    meta = asyncio.run(main())
    assert client.get_meta(["x"], 0, "p", mode="force_fetch").global_indexes == meta.global_indexes


def test_module_functions_are_the_clients_calls(client: TransferQueueClient) -> None:
    async def main() -> list[int]:
        await tq.async_kv_put("k", "p", {"x": torch.tensor(1)})
        await tq.async_kv_batch_put(["l"], "p", TensorDict({"x": torch.tensor([2])}, [1]))
        found = await tq.async_kv_batch_get(["k", "l"], "p")
        waited = await tq.async_wait("p", fields="x", keys=["k"], timeout=1)
        assert (await tq.async_stats()).puts > 0
        assert (await tq.async_coalesce(waited)).size == 1
        return found["x"].tolist()  # type: ignore[no-any-return]

    assert asyncio.run(main()) == [1, 2]
    assert tq.kv_list("p") == client.kv_list("p")
    assert tq.get_data(tq.kv_retrieve_meta(["l"], "p"))["x"].tolist() == [2]
    assert tq.stats().total_bytes == 64 << 20


def test_threads_and_loops_at_once(client: TransferQueueClient) -> None:
    failures: list[BaseException] = []

    def blocking(number: int) -> None:
        try:
            for round_ in range(20):
                data = TensorDict({"x": torch.full((3, 50 + number), number * 1000 + round_)}, [3])
                assert torch.equal(client.get_data(client.put(data, partition_id="p"))["x"], data["x"])
        except BaseException as error:
            failures.append(error)

    def looping(number: int) -> None:
        async def main() -> None:
            for round_ in range(20):
                data = TensorDict({"x": torch.full((3, 50), number * 1000 + round_)}, [3])
                meta = await client.async_put(data, partition_id="p")
                assert torch.equal((await client.async_get_data(meta))["x"], data["x"])

        try:
            asyncio.run(main())
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=target, args=(n,)) for n, target in enumerate([blocking, looping] * 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_an_allocation_waits_for_room_beside_the_loop(client: TransferQueueClient) -> None:
    big = TensorDict({"x": torch.zeros(1, 40 << 20, dtype=torch.uint8)}, [1])
    spec = {"x": ((40 << 20,), torch.uint8)}

    async def main() -> int:
        meta = await client.async_put(big, partition_id="p")
        pending = asyncio.create_task(client.async_alloc(spec, partition_id="p", batch_size=1, timeout=60))
        await asyncio.sleep(0.3)
        assert not pending.done()
        await client.async_clear_samples(meta)
        allocation = await pending
        allocation.data["x"].fill_(3)
        return int((await client.async_get_data(allocation.commit()))["x"][0, -1])

    assert asyncio.run(main()) == 3


def test_what_a_cancelled_call_has_done_is_delivered(client: TransferQueueClient) -> None:
    """A fetch that is cancelled either consumes nothing or comes too late to be cancelled: no row is lost."""
    client.put(numbers(200), partition_id="p")

    async def fetch(number: int) -> int:
        fetching = asyncio.ensure_future(client.async_get_meta("x", 1, "p", task_name="t"))
        await asyncio.sleep(0 if number % 2 else 0.0001 * (number % 7))
        fetching.cancel()
        try:
            return (await fetching).size
        except asyncio.CancelledError:
            return 0

    async def main() -> tuple[int, int]:
        received = sum([await fetch(number) for number in range(150)])
        consumed = (await client.async_get_consumption_status("t", "p"))[1]
        return received, int(consumed.sum())

    received, consumed = asyncio.run(main())
    assert received == consumed


def test_a_timeout_around_a_call_that_waits_ends_it(client: TransferQueueClient) -> None:
    async def main() -> None:
        for _ in range(3):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(client.async_wait("nowhere", fields="x", count=1), 0.1)

    began = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - began < 5
