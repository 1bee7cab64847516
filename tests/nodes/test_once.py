"""What was done and not answered is asked for again, of an agent that was started anew, and not done twice."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from tensordict import TensorDict

from tests.nodes.one_process import OneProcess, one_process
from transferqueue.client.cluster_client import ClusterClient
from transferqueue.errors import StaleMetadataError

pytestmark = pytest.mark.timeout(60)


def rows(count: int = 4, value: float = 0.0) -> TensorDict:
    return TensorDict({"x": torch.full((count,), value)}, [count])


@pytest.fixture
def cluster() -> Iterator[OneProcess]:
    with one_process(2) as made:
        made.at[0].client.place_partition("p")
        made.unanswered = {"home.call", "rows.publish", "rows.merge_tags"}
        yield made


@pytest.fixture
def client(cluster: OneProcess) -> ClusterClient:
    return cluster.at[1].client


def test_puts(cluster: OneProcess, client: ClusterClient) -> None:
    first = client.put(rows(), partition_id="p", tags=[{"n": row} for row in range(4)])
    second = client.put(rows(), partition_id="p")
    assert first.size == second.size == 4
    assert cluster.at[0].client.stats("p").rows["total"] == 8
    assert client.get_data(first)["x"].tolist() == [0.0] * 4
    keyed = client.kv_batch_put(["a", "b"], "p", rows(2, 1.0), tags=[{"n": 1}, {"n": 2}])
    assert keyed.tags == [{"n": 1}, {"n": 2}]
    assert keyed.fields == ["x"]
    assert client.kv_put("c", "p", tag={"only": 1}).tags == [{"only": 1}]
    with client.alloc({"y": ((), torch.int64)}, partition_id="p", batch_size=2) as allocation:
        allocation.data["y"].fill_(3)
    assert client.get_data(allocation.meta)["y"].tolist() == [3, 3]
    assert cluster.at[0].client.stats("p").rows["total"] == 13
    client.put(TensorDict({}, [4]), metadata=first, tags=[{"m": 1}] * 4)
    assert client.get_meta("x", 0, "p", mode="force_fetch").custom_meta[0] == {"n": 0, "m": 1}


def test_consumption_and_claims(client: ClusterClient) -> None:
    put = client.put(rows(8), partition_id="p")
    meta = client.get_meta("x", 4, "p", task_name="t")
    assert meta.global_indexes == put.global_indexes[:4]
    assert meta.is_ready
    status = client.get_consumption_status("t", "p")[1]
    assert status is not None
    assert status.sum() == 4
    claim = client.claim("c", "p", fields="x", batch_size=3, lease_s=100)
    assert claim.meta.global_indexes == put.global_indexes[:3]
    other = client.claim("c", "p", fields="x", batch_size=3, lease_s=100)
    assert other.meta.global_indexes == put.global_indexes[3:6]
    client.extend(claim, 200)
    client.ack(claim)
    with pytest.raises(StaleMetadataError):
        client.nack(claim)
    client.nack(other)
    status = client.get_consumption_status("c", "p")[1]
    assert status is not None
    assert status.sum() == 3
    assert client.reset_consumption("p", "c")
    assert client.claim("c", "p", fields="x", batch_size=8, lease_s=100).meta.size == 8
    assert client.get_meta("x", 3, "p", mode="insert").size == 3
    assert client.stats("p").rows["total"] == 11


def test_clears_and_the_rest(client: ClusterClient) -> None:
    put = client.kv_batch_put(["a", "b", "c"], "p", rows(3))
    made = client.kv_retrieve_meta(["a", "d"], "p", create=True)
    assert made.size == 2
    made.update_custom_meta([{"w": 1}, {"w": 2}])
    client.set_custom_meta(made)
    assert client.kv_list("p")["p"]["d"] == {"w": 2}
    client.kv_clear(["d"], "p")
    client.kv_batch_put(["d"], "p", rows(1, 5.0))
    assert client.kv_batch_get("d", "p")["x"].tolist() == [5.0]
    client.set_weight_version("p", 3)
    client.set_limits("p", max_unconsumed_rows=100)
    assert client.get_limits("p").max_unconsumed_rows == 100
    client.clear_samples(client.kv_retrieve_meta(["a"], "p"))
    assert set(client.kv_list("p")["p"]) == {"b", "c", "d"}
    assert client.kv_batch_get_by_meta(put.select_keys(["b"]))["x"].tolist() == [0.0]
    client.clear_partition("p")
    assert client.kv_list("p") == {}
