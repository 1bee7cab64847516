"""``cluster.replicas=2``: no acknowledged row and no acknowledged consumption is lost with any one node."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.nodes.processes import Processes, processes
from tests.support.nursery import Nursery
from tests.support.sessions import wait_for
from tests.support.versioned_rows import rows, versions_of
from transferqueue.nodes.replica_figures import ReplicaFigures, read_figures

pytest.importorskip("pyarrow.flight")
pytestmark = pytest.mark.timeout(120)
EIGHT = list(range(8))
KEYS = [f"k{number}" for number in EIGHT]


@pytest.fixture
def cluster(nursery: Nursery) -> Iterator[Processes]:
    with processes(nursery, 3, replicas=2) as made:
        yield made


def test_the_home_is_killed(cluster: Processes) -> None:
    one, two = cluster.client(1), cluster.client(2)
    one.place_partition("p", 0)
    put = one.put(rows(EIGHT, 1), partition_id="p", tags=[{"n": number} for number in EIGHT])
    keyed = two.kv_batch_put(KEYS, "p", rows(EIGHT, 2), tags=[{"k": number} for number in EIGHT])
    taken = two.get_meta("x", 4, "p", task_name="t")
    claim = one.claim("t", "p", fields="x", batch_size=2, lease_s=100)
    one.ack(claim)
    held = one.claim("t", "p", fields="x", batch_size=2, lease_s=100)
    one.kv_clear(KEYS[:2], "p")
    standby = cluster.follower(0, "p")
    cluster.kill_agent(0)
    assert versions_of(two.get_data(put)) == [(number, 1) for number in EIGHT]
    assert versions_of(one.kv_batch_get(KEYS[2:], "p")) == [(number, 2) for number in EIGHT[2:]]
    assert one.kv_list("p")["p"]["k5"] == {"k": 5}
    assert keyed.tags[3] == {"k": 3}
    indexes, status = one.get_consumption_status("t", "p")
    assert indexes is not None
    assert status is not None
    consumed = {int(index) for index, mark in zip(indexes.tolist(), status.tolist(), strict=True) if mark}
    assert consumed == {*taken.global_indexes, *claim.meta.global_indexes}
    assert set(one.claim("t", "p", fields="x", batch_size=2, lease_s=10).meta.global_indexes) == set(
        held.meta.global_indexes
    )
    two.put(rows(EIGHT, 3), partition_id="p")
    assert one.stats("p").rows["total"] == 22
    assert cluster.follower(standby, "p") == 3 - standby
    wait_for(lambda: read_figures(cluster.client(standby)._attachment.paths) == ReplicaFigures(0, 0), 20)
