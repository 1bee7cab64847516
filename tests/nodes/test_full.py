"""A node that is full is named: the home of a put, the node of a reader amid its pull, one that is told to prefetch."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from tests.nodes.batches import MIB, fill, mebibytes
from tests.nodes.one_process import OneProcess, one_process
from tests.nodes.processes import processes
from tests.support.nursery import Nursery
from transferqueue.errors import StorageFullError
from transferqueue.nodes.transport.protocol import PayloadRequest

pytestmark = pytest.mark.timeout(60)
SIZES = {"storage.size": "16MiB"}


def test_a_put_says_that_its_home_is_full_and_leaves_nothing() -> None:
    with one_process(2, **SIZES) as cluster:
        home, producer = (node.client for node in cluster.at)
        home.place_partition("p")
        filler = fill(home, "filler")
        with pytest.raises(StorageFullError, match=r"^node 0 \(0 at here:0\): no room for") as caught:
            producer.put(mebibytes(1), partition_id="p", timeout=0.2)
        error = caught.value
        assert (error.node, error.resource, error.total_bytes) == ("node 0 (0 at here:0)", "payload", 16 * MIB)
        assert pickle.loads(pickle.dumps(error)).node == error.node
        assert producer.stats().used_bytes == producer.stats().pending_bytes == 0
        home.clear_samples(filler)
        assert producer.put(mebibytes(1), partition_id="p", timeout=5).size == 1


def test_an_index_that_is_full_is_named_wherever_it_is() -> None:
    with one_process(2, **{**SIZES, "storage.index_size": "2MiB"}) as cluster:
        home, other = (node.client for node in cluster.at)
        home.place_partition("p")
        for client in (other, home):
            with pytest.raises(StorageFullError, match=r"^node 0\b.*: .*index") as caught:
                fill_index(client, "p")
            assert caught.value.resource == "index"
            assert caught.value.node is not None
            assert caught.value.node.startswith("node 0")


def fill_index(client: Any, partition: str) -> None:
    for number in range(1000):
        keys = [f"{client.link.ordinal} {number} {row} {'-' * 1000}" for row in range(20)]
        client.kv_batch_put(keys, partition, tags=[{}] * len(keys))


def test_a_reader_whose_node_fills_up_amid_a_pull_says_so_and_keeps_nothing() -> None:
    with one_process(2, **SIZES) as cluster:
        source, reader = (node.client for node in cluster.at)
        source.place_partition("p")
        # Of two puts: they come one after the other.
        meta = source.put(mebibytes(2), partition_id="p")
        numbers = TensorDict({"y": torch.arange(MIB // 8).view(1, -1)}, [1])
        source.put(numbers, metadata=meta)
        filler: list[Any] = []

        def fill_the_reader(_: PayloadRequest) -> None:
            if not filler:
                filler.append(fill(reader, "filler"))

        reader.place_partition("filler")
        cluster.before_pull = fill_the_reader
        # What has come already is not given up for the rest, which would go on until the deadline.
        with pytest.raises(StorageFullError, match=r"^node 1: no room for .* \(1048576 B\)") as caught:
            reader.get_data(meta, timeout=0.3)
        assert (caught.value.node, caught.value.wanted_bytes) == ("node 1", MIB)
        assert (reader.stats().pending_bytes, reader.stats().leased_bytes) == (0, 0)
        reader.clear_samples(filler[0])
        assert torch.equal(reader.get_data(meta, timeout=5)["y"], numbers["y"])


def prefetch(cluster: OneProcess, meta: Any) -> None:
    cluster.at[0].client.prefetch(meta, node=1, timeout=0.2)


def test_who_has_another_node_prefetch_hears_which_one_is_full() -> None:
    with one_process(2, **SIZES) as cluster:
        source, full = (node.client for node in cluster.at)
        source.place_partition("p")
        meta = source.put(mebibytes(2), partition_id="p")
        fill(full, "filler")
        with pytest.raises(StorageFullError, match=r"^node 1: no room for 2") as caught:
            prefetch(cluster, meta)
        assert caught.value.node == "node 1"


@pytest.mark.parametrize("full", [pytest.param(0, id="home", marks=pytest.mark.soak), pytest.param(1, id="standby")])
def test_of_two_copies_the_node_without_room_for_one_is_named(nursery: Nursery, full: int) -> None:
    with processes(nursery, 3, "16MiB", replicas=2) as cluster:
        home, producer = cluster.client(0), cluster.client(2)
        home.place_partition("p")
        assert cluster.follower(0, "p") == 1
        room = cluster.client(full)._store.reserve(14 * MIB, 1.0)
        # What is put at the home goes to the standby, all else to the home.
        putting = producer if full == 0 else home
        with pytest.raises(StorageFullError, match=rf"^node {full}: no room for 4") as caught:
            putting.put(mebibytes(4), partition_id="p", timeout=1.2)
        assert caught.value.node == f"node {full}"
        assert producer.get_production_status(["x"], "p")[0] is None, "no row was made"
        room.abandon()
        meta = putting.put(mebibytes(4), partition_id="p", timeout=20)
        assert producer.get_data(meta)["x"].shape == (1, 4 * MIB)
        assert cluster.follower(0, "p") == 1
