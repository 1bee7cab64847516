"""The directory dies, and a node with it: a directory that is started again is told everything by who is left."""

from __future__ import annotations

import signal
import threading

import pytest

from tests.nodes.one_process import in_threads
from tests.nodes.processes import Processes, processes
from tests.support.nursery import Nursery
from tests.support.versioned_rows import rows, versions_of
from transferqueue.errors import DataLostError

pytest.importorskip("pyarrow.flight")
pytestmark = pytest.mark.timeout(120)
EIGHT = list(range(8))


def kill_with_directory(cluster: Processes, ordinal: int) -> None:
    """Both at the same time."""
    for child in (cluster.directory, cluster.agents[ordinal]):
        child.kill(signal.SIGKILL)
    for child in (cluster.directory, cluster.agents[ordinal]):
        child.wait()


def test_the_standby_takes_over_from_a_home_that_died_with_the_directory(nursery: Nursery) -> None:
    with processes(nursery, 3, replicas=2) as cluster:
        one, two = cluster.client(1), cluster.client(2)
        one.place_partition("p", 0)
        put = one.put(rows(EIGHT, 1), partition_id="p")
        taken = two.get_meta("x", 4, "p", task_name="t")
        cluster.follower(0, "p")
        cluster.agents_know("p")
        kill_with_directory(cluster, 0)
        threading.Timer(0.5, cluster.restart_directory).start()
        # Calls that are made before the directory is back.
        found, rest, new = in_threads(
            [
                lambda: versions_of(two.get_data(put, timeout=60)),
                lambda: one.get_meta("x", 4, "p", task_name="t", timeout=60),
                lambda: two.kv_batch_put(["new"], "q", rows([0], 7)),
            ]
        )
        assert found == [(number, 1) for number in EIGHT]
        assert {*taken.global_indexes, *rest.global_indexes} == set(put.global_indexes)
        assert versions_of(one.kv_batch_get_by_meta(new)) == [(0, 7)]
        two.put(rows(EIGHT, 2), partition_id="p")
        assert one.stats("p").rows["total"] == 16
        directory = cluster.specs[1].link().directory
        assert {name: home in (1, 2) for name, home in directory.homes().items()} == {"p": True, "q": True}
        assert [place.alive for place in directory.nodes()] == [False, True, True]


@pytest.mark.soak  # the rules are tested in unit/transferqueue/nodes/directory
def test_a_home_that_died_with_the_directory_is_lost_and_not_forgotten(nursery: Nursery) -> None:
    with processes(nursery, 3) as cluster:
        cluster.client(0).kv_batch_put(["a"], "p", rows([0], 1))
        kept = cluster.client(1).kv_batch_put(["b"], "q", rows([1], 2))
        # The other agents have heard of "p" when they know of a later one.
        cluster.agents_know("q")
        kill_with_directory(cluster, 0)
        cluster.restart_directory()
        stranger = cluster.client(2)
        assert versions_of(stranger.kv_batch_get_by_meta(kept)) == [(1, 2)]
        with pytest.raises(DataLostError, match=r"node 0 .* is lost"):
            stranger.kv_batch_put(["a"], "p", rows([0], 3))
        stranger.clear_partition("p")
        stranger.kv_batch_put(["a"], "p", rows([0], 4))
        assert cluster.specs[1].link().directory.home_of("p", None) == 2
