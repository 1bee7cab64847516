"""What `tq bench` measures of this package: a producer in this process, a consumer in another.

Each function makes a session of its own and ends it. Not timed: the pipe that carries the metadata, clearing between
rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from tensordict import TensorDict

import transferqueue as tq
from transferqueue.microbench.consumer import Consumer
from transferqueue.microbench.reader import Reader
from transferqueue.microbench.timing import Measured, MemcpyUnit
from transferqueue.microbench.workload import payload_nbytes, small_batch, workload_w

SYSTEM = "transferqueue-shm"
_PARTITION = "tq-bench"
WARM_UP_ROUNDS = 3
_LEAST_STORE_NBYTES = 64 << 20
_BEGUN_S = 4.0  # the service looks once a second, later where the machine is busy
_SETTLED_S = 1.4
_SETTLING_LIMIT_S = 20.0


@contextmanager
def opened(nbytes: int, directory: str | None) -> Iterator[tuple[tq.TransferQueueClient, Consumer]]:
    """A session with room for `nbytes` of payload, in `directory` or shared memory: our client, and a reader of it."""
    choices: dict[str, Any] = {"storage.size": nbytes + _LEAST_STORE_NBYTES}
    if directory is not None:
        choices["storage.dir"] = directory
    with tq.init(session=f"bench-{time.time_ns()}", **choices) as session:
        reader = Consumer(Reader, session.name)
        try:
            yield session.client, reader
        finally:
            reader.close()


def settle(client: tq.TransferQueueClient) -> int:
    """Waits until the session's service makes no more huge pages of the memory that is backed: the steady state of a
    session that lives longer than its first seconds. Returns the bytes on huge pages; 0 where the system has none."""
    until_s = time.monotonic() + _SETTLING_LIMIT_S
    found, since_s = client.stats().huge_bytes, time.monotonic()
    while time.monotonic() < min(since_s + (_SETTLED_S if found else _BEGUN_S), until_s):
        time.sleep(0.05)
        if (now := client.stats().huge_bytes) != found:
            found, since_s = now, time.monotonic()
    return found


def put_get(rows: int, rounds: int, directory: str | None = None) -> Measured:
    """W of `rows` rows: put here, get there, every row compared once; memory is warm from the third round on."""
    batch = workload_w(rows)
    measured = Measured("put_get_w", SYSTEM, payload_nbytes(batch))
    with opened(3 * measured.nbytes, directory) as (client, reader):
        put_get_rounds(measured, client, reader, batch, rounds)
    return measured


def put_get_rounds(
    measured: Measured, client: tq.TransferQueueClient, reader: Consumer, batch: TensorDict, rounds: int
) -> tuple[tq.BatchMeta, list[int]]:
    """Adds to `measured` what rounds of put, get and touching every page of `batch` took (`workload_w`, seed 0), after
    some to warm up. Returns metadata of the batch, whose rows are cleared, and the page faults of each touch."""
    unit = MemcpyUnit(measured.nbytes)
    touches: list[float] = []
    faults: list[int] = []
    for round_index in range(rounds + WARM_UP_ROUNDS):
        began = time.perf_counter()
        meta = client.put(batch, partition_id=_PARTITION)
        put_s = time.perf_counter() - began
        get_s = reader.call("get", meta)
        touch_s, faulted = reader.call("touch")
        if round_index == 0:
            measured.checked_rows = reader.call("check", batch.batch_size[0], 0)
        if round_index >= WARM_UP_ROUNDS:
            measured.put_s.append(put_s)
            measured.get_s.append(get_s)
            measured.memcpy_s.append(unit.seconds())
            touches.append(touch_s)
            faults.append(faulted)
        reader.call("drop")
        client.clear_partition(_PARTITION)
        if round_index == 0:
            measured.facts["huge_bytes"] = settle(client)
    measured.add_touches(touches)
    return meta, faults


def small(rounds: int, directory: str | None = None) -> Measured:
    """8 rows x 16 floats: all of it overhead."""
    batch = small_batch()
    measured = Measured("small_8x16", SYSTEM, payload_nbytes(batch))
    with opened(0, directory) as (client, reader):
        for round_index in range(rounds * 30 + WARM_UP_ROUNDS):
            began = time.perf_counter()
            meta = client.put(batch, partition_id=_PARTITION)
            put_s = time.perf_counter() - began
            get_s = reader.call("get", meta)
            if round_index >= WARM_UP_ROUNDS:
                measured.put_s.append(put_s)
                measured.get_s.append(get_s)
            client.clear_samples(meta)
    return measured


def single_rows(rounds: int, directory: str | None = None) -> Measured:
    """Rows of 16 floats, each put by itself."""
    row = TensorDict({"x": torch.zeros(1, 16)}, batch_size=[1])
    measured = Measured("single_row_put", SYSTEM, 64)
    with opened(0, directory) as (client, _):
        for _ in range(rounds * 100 + WARM_UP_ROUNDS):
            began = time.perf_counter()
            client.put(row, partition_id=_PARTITION)
            measured.put_s.append(time.perf_counter() - began)
    del measured.put_s[:WARM_UP_ROUNDS]
    measured.facts["puts_per_second"] = len(measured.put_s) / sum(measured.put_s)
    return measured


def keys(count: int, rounds: int, directory: str | None = None) -> list[Measured]:
    """`count` keys with 4 floats and an empty tag each: put, get in the consumer, list, metadata."""
    names = [f"key-{index:08d}" for index in range(count)]
    batch = TensorDict({"x": torch.zeros(count, 4)}, batch_size=[count])
    with opened(count * 64, directory) as (client, reader):
        calls: dict[str, Callable[[], object]] = {
            "put": lambda: tq.kv_batch_put(keys=names, partition_id=_PARTITION, fields=batch, tags=[{}] * count),
            "list": lambda: tq.kv_list(partition_id=_PARTITION),
            "metadata": lambda: client.kv_retrieve_meta(keys=names, partition_id=_PARTITION),
        }
        found = {name: Measured(f"keys_{count}_{name}", SYSTEM) for name in ("put", "get", "list", "metadata")}
        for round_index in range(rounds + 1):
            taken = {}
            for name, call in calls.items():
                began = time.perf_counter()
                call()
                taken[name] = time.perf_counter() - began
            taken["get"] = reader.call("get_keys", names, _PARTITION)
            for name, seconds in taken.items():
                if round_index:
                    (found[name].put_s if name == "put" else found[name].get_s).append(seconds)
    return list(found.values())
