"""The guarantees between real processes: killed, stopped, and asked over connections."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from tests.nodes.one_process import in_threads
from tests.nodes.processes import Processes, processes
from tests.support.nursery import Nursery
from tests.support.sessions import wait_for
from tests.support.versioned_rows import rows, versions_of
from transferqueue import _native, errors
from transferqueue.client.cluster_client import ClusterClient

pytest.importorskip("pyarrow.flight")
pytestmark = pytest.mark.timeout(120)
EIGHT = list(range(8))
KEYS = [f"k{number}" for number in EIGHT]


@pytest.fixture(scope="module")
def cluster(nursery: Nursery) -> Iterator[Processes]:
    with processes(nursery, 3) as made:
        yield made


_numbers = iter(range(1000))


@pytest.fixture
def p(cluster: Processes) -> Iterator[str]:
    """A partition whose home is node 0."""
    name = f"p{next(_numbers)}"
    cluster.client(0).place_partition(name)
    yield name
    cluster.client(1).clear_partition(name)


def used(cluster: Processes) -> list[int]:
    return [cluster.client(ordinal)._store.stats()["used_bytes"] for ordinal in range(3)]


def test_put_here_get_there_with_the_home_elsewhere(cluster: Processes, p: str) -> None:
    meta = cluster.client(1).put(rows(EIGHT, 3), partition_id=p)
    for ordinal in range(3):
        assert versions_of(cluster.client(ordinal).get_data(meta)) == [(number, 3) for number in EIGHT]
    put = cluster.client(2).kv_batch_put(KEYS, p, rows(EIGHT, 4), tags=[{"n": number} for number in EIGHT])
    assert put.tags[3] == {"n": 3}
    assert versions_of(cluster.client(1).kv_batch_get(KEYS[::-1], p)) == [(number, 4) for number in EIGHT[::-1]]
    assert cluster.client(1).kv_list(p)[p]["k5"] == {"n": 5}
    claim = cluster.client(2).claim("t", p, fields="x", batch_size=4, lease_s=30)
    assert claim.meta.size == 4
    cluster.client(1).ack(claim)
    assert cluster.client(0).get_meta("x", 12, p, task_name="t").size == 12
    assert p in cluster.client(2).get_partition_list()

    async def both() -> Any:
        reader, writer = cluster.client(2), cluster.client(1)
        waiting = asyncio.create_task(reader.async_wait(p, fields="x", keys=["late"], timeout=30))
        await asyncio.sleep(0.1)
        await writer.async_kv_batch_put(["late"], p, rows([9], 1))
        return await reader.async_get_data(await waiting, fields=["n"])

    assert asyncio.run(both())["n"].tolist() == [[9, 1]]


def _overwrite(pipe: Connection, client: ClusterClient, partition: str, start: int) -> None:
    version = start
    while not pipe.poll():
        client.kv_batch_put(KEYS, partition, rows(EIGHT, version))
        version += 2
    pipe.send(version)


def _read(pipe: Connection, client: ClusterClient, partition: str, times: int) -> None:
    seen = []
    for _ in range(times):
        found = versions_of(client.kv_batch_get(KEYS, partition))
        assert [number for number, _ in found] == EIGHT
        assert len({version for _, version in found}) == 1, found
        seen.append(found[0][1])
    pipe.send(len(set(seen)))


def test_gets_see_one_version_while_two_nodes_overwrite(cluster: Processes, p: str) -> None:
    cluster.client(0).kv_batch_put(KEYS, p, rows(EIGHT, 0))
    writers = [cluster.start(ordinal, _overwrite, p, ordinal) for ordinal in (1, 2)]
    readers = [cluster.start(ordinal, _read, p, 25) for ordinal in range(3)]
    different = [reader.receive() for reader in readers]
    for writer in writers:
        writer.pipe.send("stop")
    assert [child.wait() for child in [*readers, *writers]] == [0] * 5
    assert max(different) > 2


def _consume(pipe: Connection, client: ClusterClient, partition: str, total: int) -> None:
    taken: list[int] = []
    while True:
        meta = client.get_meta("n", 4, partition, task_name="t", polling_mode=True, partial=True)
        taken += [int(number) for number, _ in client.get_data(meta, fields=["n"])["n"].tolist()] if meta.size else []
        if not meta.size and client.check_consumption_status("t", partition):
            status = client.get_consumption_status("t", partition)[1]
            if status is not None and len(status) == total:
                break
    pipe.send(taken)


def _produce(pipe: Connection, client: ClusterClient, partition: str, first: int, count: int) -> None:
    for number in range(first, first + count, 4):
        client.put(rows(range(number, number + 4), 0, 8), partition_id=partition)


def test_every_row_is_consumed_once_by_consumers_on_three_nodes(cluster: Processes, p: str) -> None:
    consumers = [cluster.start(ordinal, _consume, p, 80) for ordinal in range(3)]
    producers = [cluster.start(ordinal, _produce, p, 40 * number, 40) for number, ordinal in enumerate((1, 2))]
    taken = [number for consumer in consumers for number in consumer.receive()]
    assert [child.wait() for child in [*consumers, *producers]] == [0] * 5
    assert sorted(taken) == list(range(80))


def _get(pipe: Connection, client: ClusterClient, meta: Any) -> None:
    pipe.recv()
    pipe.send(versions_of(client.get_data(meta)))


def test_four_readers_of_one_node_have_the_bytes_cross_once(cluster: Processes, p: str) -> None:
    many = list(range(64))
    meta = cluster.client(1).put(rows(many, 5), partition_id=p)
    readers = [cluster.start(2, _get, meta) for _ in range(4)]
    before = cluster.sent_nbytes()
    for reader in readers:
        reader.pipe.send("go")
    for reader in readers:
        assert reader.receive() == [(number, 5) for number in many]
        assert reader.wait() == 0
    kept = cluster.client(1)._payload
    payload = kept.resolve(kept.split(kept.all_names())[0][-64:], ["x", "r", "s", "n"])
    nbytes = sum(int(payload.row_nbytes(field, payload.pieces(field)).sum()) for field in range(4))
    payload.release()
    assert 0 < cluster.sent_nbytes() - before <= 1.02 * nbytes


def test_an_agent_that_stands_still_delays_calls_and_nothing_is_done_twice(cluster: Processes, p: str) -> None:
    meta = cluster.client(1).put(rows(EIGHT, 1), partition_id=p)
    cluster.agents[0].kill(signal.SIGSTOP)
    threading.Timer(1.5, cluster.agents[0].kill, [signal.SIGCONT]).start()
    results = in_threads(
        [
            lambda: cluster.client(1).put(rows(EIGHT, 2), partition_id=p),
            lambda: cluster.client(2).get_data(meta),
            lambda: cluster.client(2).get_meta("x", 8, p, task_name="t", timeout=60),
        ]
    )
    assert versions_of(results[1]) == [(number, 1) for number in EIGHT]
    indexes, status = cluster.client(2).get_consumption_status("t", p)
    assert indexes is not None
    assert status is not None
    assert len(indexes) == 16
    assert int(status.sum()) == 8


def _die_in_a_put(pipe: Connection, client: ClusterClient, partition: str, point: str, after: int) -> None:
    _native.arm_pause(point, "kill", after=after)
    client.kv_batch_put(KEYS, partition, rows(EIGHT, 9))


@pytest.mark.skipif(not _native.PAUSE_POINTS, reason="pause points are not compiled in")
@pytest.mark.parametrize("point", ["put.after_copy", "put.before_publish", "put.after_commit_before_wake"])
def test_a_producer_killed_in_its_put_leaves_nothing(cluster: Processes, p: str, point: str) -> None:
    cluster.client(0).kv_batch_put(KEYS, p, rows(EIGHT, 0))
    time.sleep(0.1)
    child = cluster.start(1, _die_in_a_put, p, point, 0)
    status = child.wait()
    assert status == -signal.SIGKILL
    assert versions_of(cluster.client(2).kv_batch_get(KEYS, p)) == [(number, 0) for number in EIGHT]
    wait_for(lambda: not len(cluster.client(1)._payload.split(cluster.client(1)._payload.all_names())[0]), 40)


def _die_in_a_pull(pipe: Connection, client: ClusterClient, meta: Any) -> None:
    _native.arm_pause("put.before_publish", "kill", after=0)
    client.get_data(meta)


@pytest.mark.skipif(not _native.PAUSE_POINTS, reason="pause points are not compiled in")
def test_a_reader_killed_in_its_pull_keeps_nobody_from_theirs(cluster: Processes, p: str) -> None:
    meta = cluster.client(1).put(rows(EIGHT, 3), partition_id=p)
    assert cluster.start(2, _die_in_a_pull, meta).wait() == -signal.SIGKILL
    assert versions_of(cluster.client(2).get_data(meta)) == [(number, 3) for number in EIGHT]
    wait_for(lambda: not cluster.client(2)._store.stats()["pending_bytes"], 20, "what it had reserved going")


def _claim(pipe: Connection, client: ClusterClient, partition: str) -> None:
    pipe.send(client.claim("t", partition, fields="n", batch_size=8, lease_s=1000).meta.global_indexes)
    pipe.recv()


def test_claims_of_a_killed_process_of_another_node_come_back(cluster: Processes, p: str) -> None:
    cluster.client(1).put(rows(EIGHT, 0), partition_id=p)
    child = cluster.start(2, _claim, p)
    claimed = child.receive()
    assert not cluster.client(0).claim("t", p, fields="n", batch_size=8, lease_s=10)
    child.kill()
    child.wait()
    again = cluster.client(1).claim("t", p, fields="n", batch_size=8, lease_s=10, timeout=30)
    assert again.meta.global_indexes == claimed


def test_bytes_come_back_everywhere_after_clears(cluster: Processes, p: str) -> None:
    wait_for(lambda: max(used(cluster)) == 0, 60, "the bytes of earlier tests going")
    meta = cluster.client(1).put(rows(EIGHT, 3), partition_id=p)
    native = cluster.client(0).put(rows(EIGHT, 4), partition_id=p)
    for ordinal in range(3):
        cluster.client(ordinal).get_data(meta)
        cluster.client(ordinal).get_data(native)
    assert min(used(cluster)) > 0
    cluster.client(2).clear_samples(native)
    cluster.client(2).clear_samples(meta)
    wait_for(lambda: max(used(cluster)) == 0, 30, "the bytes going")


def test_an_agent_that_is_killed_and_started_again(cluster: Processes, p: str) -> None:
    meta = cluster.client(1).put(rows(EIGHT, 3), partition_id=p)
    cluster.client(0)  # keeps the session alive
    cluster.kill_agent(0)
    back = threading.Timer(1.0, cluster.restart_agent, [0])
    back.start()
    results = in_threads(
        [
            lambda: cluster.client(2).get_data(meta),
            lambda: cluster.client(1).kv_batch_put(KEYS, p, rows(EIGHT, 6)),
            lambda: cluster.client(2).wait(p, fields="x", keys=["k7"], timeout=60),
        ]
    )
    back.join()
    assert versions_of(results[0]) == [(number, 3) for number in EIGHT]
    assert versions_of(cluster.client(2).kv_batch_get(KEYS, p)) == [(number, 6) for number in EIGHT]
    assert results[2].size == 1
    assert cluster.client(2).get_production_status("x", p)[0].shape == (16,)


def test_a_lost_node_s_rows_are_named(nursery: Nursery) -> None:
    with processes(nursery, 3) as cluster:
        cluster.client(0).place_partition("p")
        kept = cluster.client(2).put(TensorDict({"x": torch.ones(2)}, [2]), partition_id="p")
        lost = cluster.client(1).put(TensorDict({"x": torch.ones(2)}, [2]), partition_id="p")
        copied = cluster.client(1).put(TensorDict({"x": torch.full((2,), 5.0)}, [2]), partition_id="p")
        cluster.client(2).prefetch(copied)
        cluster.client(1).place_partition("q", 1)
        cluster.kill_agent(1)
        with pytest.raises(errors.DataLostError) as caught:
            cluster.client(0).get_data(lost, timeout=20)
        assert set(caught.value.rows) == set(lost.global_indexes)
        assert "1" in str(caught.value.node)
        assert cluster.client(0).get_data(kept)["x"].tolist() == [1.0, 1.0]
        assert cluster.client(2).get_data(copied)["x"].tolist() == [5.0, 5.0], "it has a copy"
        assert cluster.client(0).get_data(copied)["x"].tolist() == [5.0, 5.0], "somebody has a copy"
        with pytest.raises(errors.DataLostError):
            cluster.client(0).kv_list("q")
        cluster.agents[1].pipe.close()
