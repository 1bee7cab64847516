"""The derived asynchronous face: loops, threads, waits without a thread each."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.unit.transferqueue.fake_store import FakeStore
from transferqueue.aio import AsyncRunner, asynchronous
from transferqueue.errors import ClosedError, TransferTimeoutError
from transferqueue.waiting import blocking, deadline, wait_until


class Client:
    def __init__(self) -> None:
        self._store: Any = FakeStore()
        self._async_runner = AsyncRunner(self._store)

    def double(self, number: int, *, fail: bool = False) -> int:
        """Twice the number."""
        if fail:
            raise KeyError("no")
        return 2 * number

    def slow(self) -> str:
        time.sleep(0.3)
        return threading.current_thread().name

    @blocking
    def first(self, partition: str, timeout: float | None = None) -> Any:
        def look() -> int | None:
            return next(iter(self._store.items.get(partition, ())), None)

        return (
            yield from wait_until(
                self._store, partition, deadline(timeout), look, lambda: TransferTimeoutError("too late")
            )
        )

    async_double = asynchronous(double)
    async_slow = asynchronous(slow)
    async_first = asynchronous(first)


@pytest.fixture
def client() -> Any:
    found = Client()
    yield found
    found._async_runner.close()


def test_results_and_errors_are_those_of_the_blocking_call(client: Client) -> None:
    assert asyncio.run(client.async_double(4)) == 8
    with pytest.raises(KeyError, match="no"):
        asyncio.run(client.async_double(4, fail=True))


def test_name_signature_and_documentation(client: Client) -> None:
    assert client.async_double.__name__ == "async_double"
    assert "Twice" in (client.async_double.__doc__ or "")
    assert list(inspect.signature(client.async_double).parameters) == ["number", "fail"]
    assert inspect.iscoroutinefunction(client.async_first)


@pytest.mark.timeout(30)
def test_calls_run_beside_the_loop(client: Client) -> None:
    async def main() -> tuple[list[str], int]:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.01)

        ticker = asyncio.create_task(tick())
        names = await asyncio.gather(*[client.async_slow() for _ in range(3)])
        ticker.cancel()
        return names, ticks

    names, ticks = asyncio.run(main())
    assert all(name.startswith("transferqueue-async") for name in names)
    assert ticks > 3


@pytest.mark.timeout(60)
def test_many_waiters_take_one_thread(client: Client) -> None:
    async def main() -> tuple[list[int], int, int]:
        tasks = [asyncio.create_task(client.async_first("p")) for _ in range(64)]
        await asyncio.sleep(0.5)
        threads = threading.active_count()
        waits_before = client._store.waits
        await asyncio.sleep(1.0)
        waits = client._store.waits - waits_before
        client._store.put("p", 7)
        return await asyncio.gather(*tasks), threads, waits

    before = threading.active_count()
    results, threads, waits = asyncio.run(main())
    assert results == [7] * 64
    # Pool threads and the notifier, not one per waiter; and 64 waiters sleep as one does.
    assert threads - before < 40
    assert waits < 64


@pytest.mark.timeout(60)
def test_three_loops_in_a_row_and_two_at_once(client: Client) -> None:
    for number in range(3):
        threading.Timer(0.1, lambda n=number: client._store.put(f"row {n}", n)).start()
        assert asyncio.run(client.async_first(f"row {number}")) == number
    with ThreadPoolExecutor(2) as pool:
        answers = [pool.submit(asyncio.run, client.async_first(f"both {number}")) for number in range(2)]
        time.sleep(0.2)
        for number in range(2):
            client._store.put(f"both {number}", number)
        assert [answer.result() for answer in answers] == [0, 1]


@pytest.mark.timeout(30)
def test_blocking_calls_work_on_the_loops_own_thread(client: Client) -> None:
    async def main() -> int:
        threading.Timer(0.1, lambda: client._store.put("p", 7)).start()
        return client.first("p", timeout=20)  # type: ignore[no-any-return]

    assert asyncio.run(main()) == 7


@pytest.mark.timeout(30)
def test_a_timeout_is_typed_and_a_busy_loop_makes_no_false_one(client: Client) -> None:
    with pytest.raises(TransferTimeoutError):
        asyncio.run(client.async_first("never", timeout=0.1))

    async def main() -> int:
        waiting = asyncio.create_task(client.async_first("p", timeout=0.4))
        await asyncio.sleep(0.1)
        client._store.put("p", 7)
        time.sleep(1.0)  # the loop computes past the deadline
        return await waiting  # type: ignore[no-any-return]

    assert asyncio.run(main()) == 7


@pytest.mark.timeout(30)
def test_a_cancelled_wait_leaves_nothing_behind(client: Client) -> None:
    async def main() -> int:
        waiting = asyncio.create_task(client.async_first("p"))
        await asyncio.sleep(0.2)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        notifier = client._async_runner._notifier
        assert notifier is not None
        return len(notifier._waiters)

    assert asyncio.run(main()) == 0


@pytest.mark.timeout(30)
def test_closing_wakes_waiters_and_refuses_new_calls(client: Client) -> None:
    async def main() -> None:
        waiting = asyncio.create_task(client.async_first("p"))
        await asyncio.sleep(0.2)
        client._async_runner.close()
        with pytest.raises(ClosedError):
            await waiting
        with pytest.raises(ClosedError):
            await client.async_double(1)

    asyncio.run(main())


@pytest.mark.timeout(30)
def test_a_store_that_closes_wakes_waiters_with_its_error(client: Client) -> None:
    async def main() -> None:
        waiting = asyncio.create_task(client.async_first("p"))
        await asyncio.sleep(0.2)
        client._store.close()
        with pytest.raises(ClosedError):
            await waiting

    asyncio.run(main())


@pytest.mark.timeout(30)
def test_a_commit_without_a_wake_is_noticed(client: Client) -> None:
    client._store.put("p", 0)
    client._store.items.clear()
    threading.Timer(0.2, lambda: client._store.put("p", 7, wake=False)).start()
    assert asyncio.run(client.async_first("p", timeout=20)) == 7


@pytest.mark.timeout(30)
def test_a_long_step_does_not_hold_up_other_calls(client: Client) -> None:
    async def main() -> float:
        runner = client._async_runner
        long = asyncio.create_task(runner.run(lambda: time.sleep(1.0)))
        await asyncio.sleep(0.1)
        began = time.monotonic()
        assert await asyncio.gather(*(client.async_double(number) for number in range(20))) == list(range(0, 40, 2))
        taken_s = time.monotonic() - began
        await long
        return taken_s

    assert asyncio.run(main()) < 0.7
