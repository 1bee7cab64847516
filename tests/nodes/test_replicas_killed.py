"""Nodes killed and stopped at every moment of a call, with ``cluster.replicas=2``. Long: a cluster for each."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from tests.nodes.one_process import in_threads
from tests.nodes.processes import LOST_AFTER_S, Processes, processes
from tests.support.nodes import nodes_of
from tests.support.nursery import Nursery
from tests.support.sessions import wait_for
from tests.support.versioned_rows import rows, versions_of
from transferqueue import _native
from transferqueue.client.cluster_client import ClusterClient
from transferqueue.errors import StaleMetadataError, TransferQueueError
from transferqueue.nodes.replica_figures import ReplicaFigures, read_figures

pytest.importorskip("pyarrow.flight")
pytestmark = [pytest.mark.timeout(300), pytest.mark.soak]
EIGHT = list(range(8))
KEYS = [f"k{number}" for number in EIGHT]


@pytest.fixture
def cluster(nursery: Nursery) -> Iterator[Processes]:
    with processes(nursery, 3, replicas=2) as made:
        made.client(1).place_partition("p", 0)
        yield made


def consumed(client: ClusterClient, task: str = "t") -> set[int]:
    indexes, status = client.get_consumption_status(task, "p")
    assert indexes is not None
    assert status is not None
    return {int(row) for row, mark in zip(indexes.tolist(), status.tolist(), strict=True) if mark}


def put_then(cluster: Processes, call: Callable[[ClusterClient, Any], Any], point: str) -> tuple[Any, Any]:
    """(eight rows by keys, what the call returned), the home's agent being killed at that point of the call."""
    one, two = cluster.client(1), cluster.client(2)
    put = one.kv_batch_put(KEYS, "p", rows(EIGHT, 1))
    cluster.arm(0, point)
    answer = call(two, put)
    assert cluster.agents[0].wait() == -signal.SIGKILL
    return put, answer


POINTS = ["index.before_commit", "index.after_commit"]


@pytest.mark.skipif(not _native.PAUSE_POINTS, reason="pause points are not compiled in")
@pytest.mark.parametrize("point", [*POINTS, "index.publish.before_commit", "put.after_commit_before_wake"])
def test_killed_in_a_put(cluster: Processes, point: str) -> None:
    put_then(cluster, lambda client, _: client.kv_batch_put([*KEYS[4:], "new"], "p", rows([4, 5, 6, 7, 8], 2)), point)
    one = cluster.client(1)
    found = versions_of(one.kv_batch_get([*KEYS, "new"], "p"))
    assert found == [(number, 1 if number < 4 else 2) for number in range(9)]
    assert one.stats("p").rows["total"] == 9


@pytest.mark.skipif(not _native.PAUSE_POINTS, reason="pause points are not compiled in")
@pytest.mark.parametrize("point", POINTS)
def test_killed_in_consumption(cluster: Processes, point: str) -> None:
    _, taken = put_then(cluster, lambda client, _: client.get_meta("x", 5, "p", task_name="t", timeout=60), point)
    assert consumed(cluster.client(1)) == set(taken.global_indexes)
    assert taken.size == 5


@pytest.mark.skipif(not _native.PAUSE_POINTS, reason="pause points are not compiled in")
@pytest.mark.parametrize("point", POINTS)
def test_killed_in_a_claim(cluster: Processes, point: str) -> None:
    def claim(client: ClusterClient, _: Any) -> Any:
        return client.claim("t", "p", fields="x", batch_size=3, lease_s=100, timeout=60)

    _, claimed = put_then(cluster, claim, point)
    cluster.client(2).ack(claimed)
    assert consumed(cluster.client(1)) == set(claimed.meta.global_indexes)


@pytest.mark.skipif(not _native.PAUSE_POINTS, reason="pause points are not compiled in")
@pytest.mark.parametrize("point", POINTS)
def test_killed_in_an_ack(cluster: Processes, point: str) -> None:
    acked: list[bool] = []

    def claim_and_ack(client: ClusterClient, _: Any) -> Any:
        # The point is armed, so the claim is made by somebody else before: see below.
        try:
            client.ack(held[0])
            acked.append(True)
        except StaleMetadataError:
            acked.append(False)  # the claim was lost with the home: its rows come back
        return held[0]

    one = cluster.client(1)
    one.kv_batch_put(KEYS, "p", rows(EIGHT, 1))
    held = [cluster.client(2).claim("t", "p", fields="x", batch_size=3, lease_s=100)]
    cluster.arm(0, point)
    claim_and_ack(cluster.client(2), None)
    assert cluster.agents[0].wait() == -signal.SIGKILL
    assert consumed(one) == (set(held[0].meta.global_indexes) if acked[0] else set())
    assert one.get_meta("x", 8 - 3 * acked[0], "p", task_name="t").size == 8 - 3 * acked[0]


@pytest.mark.skipif(not _native.PAUSE_POINTS, reason="pause points are not compiled in")
@pytest.mark.parametrize("point", POINTS)
def test_killed_in_a_clear(cluster: Processes, point: str) -> None:
    put_then(cluster, lambda client, _: client.kv_clear(KEYS[:3], "p"), point)
    one = cluster.client(1)
    assert set(one.kv_list("p")["p"]) == set(KEYS[3:])
    assert versions_of(one.kv_batch_get(KEYS[3:], "p")) == [(number, 1) for number in EIGHT[3:]]


def test_the_producer_is_killed(cluster: Processes, nursery: Nursery) -> None:
    put = cluster.client(2).put(rows(EIGHT, 5), partition_id="p")
    cluster.kill_agent(2)
    assert versions_of(cluster.client(1).get_data(put)) == [(number, 5) for number in EIGHT]
    wait_for(lambda: cluster.replicas(0)[0] == {"p": 1}, 40, "the one that is left following")
    assert cluster.follower(0, "p") == 1
    cluster.kill_agent(0)
    assert versions_of(cluster.client(1).get_data(put)) == [(number, 5) for number in EIGHT], "a second loss"


def test_the_standby_is_killed(cluster: Processes) -> None:
    put = cluster.client(2).put(rows(EIGHT, 5), partition_id="p")
    standby = cluster.follower(0, "p")
    cluster.kill_agent(standby)
    left = cluster.client(3 - standby)
    again = left.kv_batch_put(KEYS, "p", rows(EIGHT, 6))
    wait_for(lambda: cluster.replicas(0)[0] == {"p": 3 - standby}, 40, "another standby")
    assert cluster.follower(0, "p") == 3 - standby
    cluster.kill_agent(0)
    assert versions_of(left.get_data(put)) == [(number, 5) for number in EIGHT]
    assert versions_of(left.kv_batch_get_by_meta(again)) == [(number, 6) for number in EIGHT]


def test_a_home_that_stood_still_is_none_any_more(cluster: Processes) -> None:
    two = cluster.client(2)
    two.kv_batch_put(KEYS, "p", rows(EIGHT, 1))
    cluster.agents[0].kill(signal.SIGSTOP)
    try:
        results = in_threads(
            [
                lambda: two.kv_batch_put(KEYS, "p", rows(EIGHT, 2)),
                lambda: cluster.client(1).get_meta("x", 3, "p", task_name="t", timeout=60),
            ]
        )
    finally:
        cluster.agents[0].kill(signal.SIGCONT)
    # Who believed in the old home is told: nothing that it says was true before it stood still is said again.
    stale = cluster.client(0)
    stale.link._learn("p", 0)
    assert versions_of(stale.kv_batch_get(KEYS, "p")) == [(number, 2) for number in EIGHT]
    stale.link._learn("p", 0)
    assert stale.get_meta("x", 5, "p", task_name="t", timeout=30).size == 5
    assert consumed(two) >= set(results[1].global_indexes)
    assert len(consumed(two)) == 8
    assert cluster.replicas(0)[0] == {}
    home = two.link.directory.home_of("p", None)
    assert home in (1, 2)
    assert cluster.follower(home, "p") != home


def test_an_agent_that_is_started_again_in_time_stays_home(cluster: Processes) -> None:
    one = cluster.client(1)
    cluster.client(0)  # keeps the store
    put = one.put(rows(EIGHT, 1), partition_id="p")
    cluster.kill_agent(0)
    cluster.restart_agent(0)
    one.kv_batch_put(KEYS, "p", rows(EIGHT, 2))
    assert versions_of(cluster.client(0).get_data(put)) == [(number, 1) for number in EIGHT]
    cluster.follower(0, "p")  # which was told everything
    cluster.kill_agent(0)
    assert versions_of(cluster.client(2).kv_batch_get(KEYS, "p")) == [(number, 2) for number in EIGHT]
    # Started again too late, it is home of nothing, and becomes the standby of the one that took its place or nobody's.
    cluster.restart_agent(0)
    wait_for(lambda: "p" not in cluster.client(0)._store.partitions(), 30, "what it had been home of going")
    cluster.client(0).kv_batch_put(KEYS, "p", rows(EIGHT, 3))
    assert versions_of(one.kv_batch_get(KEYS, "p")) == [(number, 3) for number in EIGHT]
    home = one.link.directory.home_of("p", None)
    assert home in (1, 2)
    cluster.follower(home, "p")


def test_two_nodes_and_then_one(nursery: Nursery) -> None:
    with processes(nursery, 2, replicas=2) as cluster:
        cluster.client(0).place_partition("p", 0)
        cluster.client(0).kv_batch_put(KEYS, "p", rows(EIGHT, 1))
        cluster.client(1).kv_batch_put(KEYS[:4], "p", rows(EIGHT[:4], 2))
        cluster.kill_agent(0)
        one = cluster.client(1)
        assert versions_of(one.kv_batch_get(KEYS, "p")) == [(number, 2 if number < 4 else 1) for number in EIGHT]
        one.kv_batch_put(KEYS, "p", rows(EIGHT, 3))
        assert cluster.replicas(1) == [{"p": None}, 8], "one copy of all"
        told = one._attachment.paths
        wait_for(lambda: read_figures(told) == ReplicaFigures(8, 1), 20, "what the metrics page and tq stats tell")
        assert one.get_meta("x", 8, "p", task_name="t").size == 8
        assert len(consumed(one)) == 8


def test_a_checkpoint_is_loaded(cluster: Processes, tmp_path: Path) -> None:
    one, two = cluster.client(1), cluster.client(2)
    put = two.kv_batch_put(KEYS, "p", rows(EIGHT, 1))
    taken = one.get_meta("x", 3, "p", task_name="t")
    one.save_checkpoint(tmp_path / "saved")
    two.kv_batch_put(KEYS, "p", rows(EIGHT, 2))
    one.get_meta("x", 5, "p", task_name="t")
    one.load_checkpoint(tmp_path / "saved")
    assert versions_of(two.kv_batch_get_by_meta(put)) == [(number, 1) for number in EIGHT]
    cluster.follower(0, "p")  # two copies of what was loaded
    cluster.kill_agent(0)
    assert versions_of(two.kv_batch_get_by_meta(put)) == [(number, 1) for number in EIGHT]
    assert consumed(two) == set(taken.global_indexes)
    two.kv_batch_put(KEYS, "p", rows(EIGHT, 3))
    assert versions_of(one.kv_batch_get(KEYS, "p")) == [(number, 3) for number in EIGHT]


def test_bytes_come_back_and_second_copies_go(cluster: Processes) -> None:
    metas = [cluster.client(ordinal).put(rows(EIGHT, ordinal), partition_id="p") for ordinal in range(3)]
    for meta in metas:
        cluster.client(1).clear_samples(meta)
    used = lambda: [cluster.client(ordinal)._store.stats()["used_bytes"] for ordinal in range(3)]  # noqa: E731
    wait_for(lambda: max(used()) == 0, 60, "the bytes going")
    cluster.client(0).put(rows(EIGHT, 3), partition_id="p")
    cluster.client(0).clear_partition("p")
    wait_for(lambda: max(used()) == 0, 60, "the bytes going")


def _works(pipe: Connection, part: str) -> None:
    import transferqueue as tq

    client = tq.attach(part).client
    while (asked := pipe.recv()) is not None:
        what, *arguments = asked
        if what == "put":
            pipe.send(client.kv_batch_put(KEYS, "q", rows(EIGHT, arguments[0])).keys)
        elif what == "place":
            pipe.send(client.place_partition("q", arguments[0]))
        elif what == "take":
            pipe.send(client.get_meta("x", 3, "q", task_name="t", timeout=60).size)
        else:
            nodes = [(node.alive, node.single_rows, node.single_partitions) for node in tq.init().nodes()]
            pipe.send((versions_of(client.kv_batch_get(KEYS, "q")), nodes))
    tq.close()


def test_with_tq_node(nursery: Nursery, tmp_path: Path) -> None:
    with nodes_of(nursery, tmp_path, 3, settings={"cluster.replicas": "2"}) as nodes:
        near, far = (nursery.start(_works, nodes.part(number)) for number in (1, 2))
        near.pipe.send(("place", 1))
        assert near.receive() == 1
        for child, version in ((near, 1), (far, 2)):
            child.pipe.send(("put", version))
            assert child.receive() == KEYS
        near.kill()
        near.wait()
        nodes.processes[1].kill()
        for _ in range(2):
            far.pipe.send(("take",))
            assert far.receive() == 3
        far.pipe.send(("get",))
        assert far.receive()[0] == [(number, 2) for number in EIGHT]
        far.pipe.send(("put", 3))
        far.receive()

        def one_copy_left() -> bool:
            far.pipe.send(("get",))
            found, told = far.receive()
            assert found == [(number, 3) for number in EIGHT]
            return [entry[1:] for entry in told if entry[0]] != [(0, 0), (0, 0)]

        wait_for(lambda: not one_copy_left(), 60, "two copies of all")
        far.pipe.send(None)
        assert far.wait() == 0


def test_nodes_killed_at_random(nursery: Nursery) -> None:
    """What was acknowledged is there, whatever node dies; the next one when there are two copies again."""
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    with processes(nursery, 4, replicas=2) as cluster:
        cluster.client(3).place_partition("p", 0)
        expected: dict[str, int] = {}
        acked: set[int] = set()
        stop = threading.Event()
        guard = threading.Lock()

        def work(ordinal: int) -> None:
            client, number = cluster.client(ordinal), 0
            while not stop.is_set() and alive[ordinal]:
                key, number = f"{ordinal}-{number % 50}", number + 1
                try:
                    client.kv_batch_put([key], "p", rows([number % 50], number))
                    with guard:
                        expected[key] = number
                    meta = client.get_meta("x", 1, "p", task_name="t", polling_mode=True)
                    with guard:
                        acked.update(meta.global_indexes)
                except TransferQueueError as error:
                    if alive[ordinal]:
                        raise AssertionError(f"seed {seed}: node {ordinal} was refused") from error

        alive = [True] * 4
        workers = [threading.Thread(target=work, args=(ordinal,)) for ordinal in (2, 3)]
        for worker in workers:
            worker.start()
        home = 0
        for victim in [0, 1]:
            time.sleep(2 + chance.random() * 3)
            alive[victim] = False
            cluster.kill_agent(victim)
            time.sleep(2 * LOST_AFTER_S)
            home = cluster.specs[3].link().directory.home_of("p", None) or 0
            wait_for(lambda at=home: cluster.replicas(at)[1] == 0, 60, f"seed {seed}: second copies")  # type: ignore[misc]
        stop.set()
        for worker in workers:
            worker.join(120)
        client = cluster.client(3)
        for key, number in expected.items():
            found = versions_of(client.kv_batch_get([key], "p"))[0]
            # A put whose answer the end cut off may be there, too.
            assert number <= found[1] <= number + 50, f"seed {seed}: {key}"
        assert acked <= consumed(client), f"seed {seed}"
