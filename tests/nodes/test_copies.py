"""Copies of other nodes' payload: they make room, and go when what they are copies of goes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensordict import TensorDict

from tests.nodes.one_process import OneProcess, one_process
from transferqueue.errors import StorageFullError
from transferqueue.node_service.warm_room import WarmRoom
from transferqueue.nodes.eviction import evict_copies

pytestmark = pytest.mark.timeout(60)
MIB = 1 << 20


def large(value: int, mib: int = 4) -> TensorDict:
    return TensorDict({"x": torch.full((mib, MIB // 8), value)}, [mib])


def put(cluster: OneProcess, ordinal: int, value: int) -> Any:
    return cluster.at[ordinal].client.put(large(value), partition_id="p")


def copies(cluster: OneProcess, ordinal: int) -> int:
    payload = cluster.at[ordinal].client._payload
    return len(payload.split(payload.all_names())[1])


def test_the_oldest_copies_make_room_for_reads_and_puts_but_not_those_that_are_held() -> None:
    with one_process(3, **{"storage.size": "16MiB"}) as cluster:
        cluster.at[0].client.place_partition("p")
        metas = [put(cluster, ordinal, number) for number, ordinal in enumerate((0, 0, 1, 1, 0, 1))]
        reader = cluster.at[2].client
        for number, meta in enumerate(metas):
            assert torch.equal(reader.get_data(meta)["x"], large(number)["x"])
            assert copies(cluster, 2) <= 16
        held = reader.get_data(metas[5])["x"]
        before = cluster.pulled_nbytes
        assert int(reader.get_data(metas[4])["x"][0, 0]) == 4
        assert cluster.pulled_nbytes == before, "the newest are still there"
        for number in range(3):
            put(cluster, 2, 10 + number)
        assert copies(cluster, 2) == 4, "the one that is held"
        assert int(held[0, 0]) == 5
        with pytest.raises(StorageFullError):
            reader.put(large(20), partition_id="p", timeout=0.2)
        del held
        assert reader.put(large(21), partition_id="p", timeout=10).size == 4
        assert copies(cluster, 2) == 0
        assert int(cluster.at[1].client.get_data(metas[0], mode="copy")["x"][0, 0]) == 0


def test_evicting_clears_no_more_than_is_wanted() -> None:
    with one_process(2) as cluster:
        cluster.at[0].client.place_partition("p")
        metas = [put(cluster, 0, number) for number in range(3)]
        for meta in metas:
            cluster.at[1].client.prefetch(meta)
        store = cluster.at[1].store
        assert cluster.at[1].client.stats().copies_bytes == 12 * MIB
        assert cluster.at[0].client.stats("p").copies_bytes == 0
        assert evict_copies(store, 1, 1) == 4 * MIB
        assert copies(cluster, 1) == 8
        assert cluster.at[1].client.get_data_with_report(metas[1])[1].bytes_pulled == 0
        assert cluster.at[1].client.get_data_with_report(metas[0])[1].bytes_pulled == 4 * MIB
        assert evict_copies(store, 1, 1 << 40) == 12 * MIB
        assert evict_copies(store, 1, 1) == 0


def test_the_only_copy_of_a_lost_node_s_rows_stays_and_is_found() -> None:
    with one_process(3) as cluster:
        cluster.at[0].client.place_partition("p")
        meta = put(cluster, 1, 3)
        cluster.at[2].client.prefetch(meta)
        cluster.lost.add(1)
        cluster.at[2].home.upkeep.sweep_copies()
        assert int(cluster.at[0].client.get_data(meta)["x"][0, 0]) == 3
        cluster.at[0].client.clear_samples(meta)
        cluster.at[2].home.upkeep.sweep_copies()
        assert copies(cluster, 2) == 0


def test_payload_of_a_lost_home_is_kept_for_when_it_comes_back() -> None:
    with one_process(3) as cluster:
        cluster.at[0].client.place_partition("p")
        meta = put(cluster, 1, 3)
        payload, upkeep = cluster.at[1].client._payload, cluster.at[1].home.upkeep
        cluster.lost.add(0)
        upkeep.grace_s = 0.0
        for _ in range(3):
            upkeep.sweep()
        assert len(payload.all_names()) == 4
        cluster.lost.clear()
        assert int(cluster.at[2].client.get_data(meta)["x"][0, 0]) == 3
        cluster.lost.add(0)
        upkeep.keep_for_lost_s = upkeep._confirm_s = 0.0
        for _ in range(2):
            upkeep.sweep()
            upkeep._confirm_s = 0.0
        assert len(payload.all_names()) == 0


def test_readers_are_told_at_once_which_copies_are_of_no_use() -> None:
    with one_process(3) as cluster:
        cluster.at[0].client.place_partition("p")
        own, other, kept = put(cluster, 0, 1), put(cluster, 1, 2), put(cluster, 0, 3)
        for meta in (own, other, kept):
            cluster.at[2].client.prefetch(meta)
        home = cluster.at[0].home.upkeep
        home.release()
        assert copies(cluster, 2) == 12
        held = cluster.at[2].client.get_data(own)["x"]
        for meta in (own, other):
            cluster.at[1].client.clear_samples(meta)
        cluster.calls.clear()
        home.release()
        assert sorted(cluster.calls) == [(1, "payload.release"), (2, "payload.release")]
        assert copies(cluster, 2) == 4
        assert int(held[-1, -1]) == 1
        assert cluster.at[2].client.get_data_with_report(kept)[1].bytes_pulled == 0


def test_a_reader_that_cannot_be_told_finds_out_by_itself() -> None:
    with one_process(2) as cluster:
        cluster.at[0].client.place_partition("p")
        meta = put(cluster, 0, 1)
        cluster.at[1].client.prefetch(meta)
        cluster.at[0].home.upkeep.release()
        cluster.at[0].client.clear_samples(meta)
        cluster.cut.add(1)
        cluster.at[0].home.upkeep.release()
        cluster.at[0].home.upkeep.release()
        cluster.cut.clear()
        assert cluster.calls.count((1, "payload.release")) == 1
        assert copies(cluster, 1) == 4
        cluster.at[1].home.upkeep.sweep_copies()
        assert copies(cluster, 1) == 0


def test_room_for_copies_is_touched_ahead() -> None:
    with one_process(2, **{"storage.size": "64MiB"}) as cluster:
        store = cluster.at[1].store
        room = WarmRoom(store, 12 * MIB)
        while room.tick():
            pass
        assert 12 * MIB <= store.stats()["warm_bytes"] < 20 * MIB
        cluster.at[0].client.place_partition("p")
        held = cluster.at[1].client.get_data(put(cluster, 0, 1))
        assert store.stats()["warm_bytes"] < 12 * MIB
        assert room.tick() > 0, "what was used is made up for"
        del held
        assert WarmRoom(store, 0).tick() == 0
        large_room = WarmRoom(store, 1 << 40)
        while large_room.tick():
            pass
        assert store.stats()["warm_bytes"] <= 20 * MIB, "a quarter of the store at most"
