"""One client, many threads; and what it must not change behind the program's back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tensordict import NonTensorStack, TensorDict

import transferqueue as tq
from tests.support.sessions import in_child
from tests.support.threads import run_together
from transferqueue import TransferQueueClient

pytestmark = pytest.mark.timeout(120)
DTYPES = [
    torch.int8,
    torch.bfloat16,
    torch.float64,
    torch.bool,
    torch.complex64,
    torch.int64,
    torch.float16,
    torch.uint8,
]


def test_threads_share_no_encoder_state(client: TransferQueueClient) -> None:
    def rounds(number: int) -> None:
        generator = torch.Generator().manual_seed(number)
        for round_ in range(200):
            rows = 1 + round_ % 4
            columns = int(torch.randint(0, 300, (1,), generator=generator))
            value = torch.randint(0, 2, (rows, columns), generator=generator).to(DTYPES[number])
            data = TensorDict(
                {"x": value, "s": NonTensorStack(*[f"{number} {round_} {row}" for row in range(rows)])}, [rows]
            )
            meta = client.put(data, partition_id=f"p{number % 3}")
            found = client.get_data(meta)
            assert found["x"].dtype == DTYPES[number]
            assert torch.equal(found["x"], value)
            assert list(found["s"]) == list(data["s"])
            client.clear_samples(meta)

    run_together(*(lambda n=number: rounds(n) for number in range(8)))  # type: ignore[misc]


def test_the_number_of_torch_threads_is_the_programs(client: TransferQueueClient) -> None:
    before = torch.get_num_threads()
    seen = set()

    def put() -> None:
        for _ in range(20):
            meta = client.put(TensorDict({"x": torch.zeros(4, 50_000)}, [4]), partition_id="p")
            client.get_data(meta)
            seen.add(torch.get_num_threads())
            client.clear_samples(meta)

    run_together(*[put] * 4)
    # A fresh thread has the process's number, or its own default: what matters is that we did not set it.
    fresh: list[int] = []
    run_together(lambda: fresh.append(torch.get_num_threads()))
    assert seen <= {before, *fresh}
    assert torch.get_num_threads() == before


def test_readers_during_a_clear_get_whole_rows_or_a_clear_error(client: TransferQueueClient) -> None:
    """64 rows are cleared one by one while four threads read batches of them."""
    width = 4096
    data = TensorDict({"x": torch.arange(64).unsqueeze(1).repeat(1, width), "y": torch.arange(64)}, [64])
    meta = client.put(data, partition_id="p")
    cleared: list[int] = []
    outcomes = {"whole": 0, "gone": 0}

    def read(offset: int) -> None:
        while len(cleared) < 64:
            rows = [(offset * 16 + step * 5) % 64 for step in range(8)]
            try:
                found = client.get_data(meta.select_samples(rows))
            except tq.StaleMetadataError as error:
                assert set(error.rows) <= {meta.global_indexes[row] for row in rows}  # noqa: PT017
                outcomes["gone"] += 1
                continue
            assert torch.equal(found["x"], torch.tensor(rows).unsqueeze(1).repeat(1, width))
            assert found["y"].tolist() == rows
            outcomes["whole"] += 1

    def clear() -> None:
        for row in range(64):
            client.clear_samples(meta[row])
            cleared.append(row)

    run_together(*(lambda o=offset: read(o) for offset in range(4)), clear)  # type: ignore[misc]
    assert outcomes["whole"] + outcomes["gone"] > 0
    assert client.get_meta("x", 1, "p", task_name="t", polling_mode=True).size == 0


@pytest.mark.usefixtures("forkable")
def test_data_outlives_its_writer(client: TransferQueueClient) -> None:
    def write() -> None:
        tq.kv_put("from the child", "p", {"x": torch.arange(100_000)}, {"pid": "child"})
        tq.close()

    assert in_child(write) == 0
    assert torch.equal(client.kv_batch_get("from the child", "p")["x"][0], torch.arange(100_000))
    assert client.kv_list("p")["p"] == {"from the child": {"pid": "child"}}


def test_objects_are_dropped_in_any_order(client: TransferQueueClient, until_freed: Callable[[], None]) -> None:
    """Views, metadata, allocations and reports die in whatever order the program lets go of them."""
    meta = client.put(TensorDict({"x": torch.zeros(4, 50_000), "y": torch.zeros(4, 50_000)}, [4]), partition_id="p")
    things: list[Any] = []
    for order in ([0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]):
        batch = client.get_data(meta)
        allocation = client.alloc({"z": ((50_000,), torch.float32)}, partition_id="p", batch_size=1)
        things = [batch["x"][1:3], batch, allocation.data["z"], allocation]
        del batch, allocation
        for position in order:
            things[position] = None
    client.clear_partition("p")
    until_freed()
    client._store.reclaim()
    stats = client.stats()
    assert stats.used_bytes + stats.retired_bytes + stats.leased_bytes + stats.pending_bytes == 0
