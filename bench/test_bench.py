"""pytest-benchmark entry: `pytest bench/test_bench.py -p pytest_benchmark.plugin`: put and get of W, and a memcpy."""

from __future__ import annotations

from typing import Any

import pytest

import transferqueue as tq
from bench.ours import PARTITION, session
from bench.timing import MemcpyUnit
from bench.workload import assert_equal_batches, payload_nbytes, workload_w


@pytest.fixture(scope="module")
def opened() -> Any:
    with session() as value:
        yield value


def test_memcpy_w(benchmark: Any) -> None:
    unit = MemcpyUnit(payload_nbytes(workload_w()))
    assert benchmark(unit.seconds) > 0


def test_put_w(benchmark: Any, opened: Any) -> None:
    batch, client = workload_w(), tq.get_client()

    def put_and_clear() -> int:
        meta = client.put(batch, partition_id=PARTITION)
        client.clear_partition(PARTITION)
        return int(meta.size)

    assert benchmark(put_and_clear) == 512


def test_get_w(benchmark: Any, opened: Any) -> None:
    batch, client = workload_w(), tq.get_client()
    meta = client.put(batch, partition_id=PARTITION)
    got = benchmark(client.get_data, meta)
    assert_equal_batches(got, batch)
    client.clear_partition(PARTITION)
