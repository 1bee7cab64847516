"""Checkpoints while producers and consumers go on: what is saved is one moment of the session."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch

import transferqueue as tq
from tests.support.nursery import Nursery
from tests.support.sessions import embedded, wait_for
from tests.support.versioned_rows import rows, versions_of
from transferqueue import _native

pytestmark = pytest.mark.timeout(120)
GROUP = 4


def produce(pipe: Connection, session: str) -> None:
    """Until told to stop: overwrites eight rows in one put, and puts a group of new ones, clears an old one."""
    client = tq.init(session=session).client
    groups = []
    version = 0
    pipe.send("started")
    while not pipe.poll():
        version += 1
        client.kv_batch_put([f"k{n}" for n in range(8)], "same", rows(range(8), version), [{"v": version}] * 8)
        groups.append(client.put(rows(range(version * GROUP, version * GROUP + GROUP), version), partition_id="groups"))
        if len(groups) > 3:
            client.clear_samples(groups.pop(0))
    pipe.send(version)
    tq.close()


def version_of_the_same(client: tq.TransferQueueClient) -> int:
    tags = client.kv_list("same").get("same", {}).values()
    return next((row["v"] for row in tags), 0)


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as found:
        yield found


def test_what_is_saved_is_one_moment(nursery: Nursery, tmp_path: Path) -> None:
    n_saves = 6
    with embedded() as session:
        producers = [nursery.start(produce, session.name) for _ in range(2)]
        assert [child.receive() for child in producers] == ["started"] * 2
        for number in range(n_saves):
            before = version_of_the_same(session.client)
            session.client.save_checkpoint(tmp_path / str(number))
            wait_for(lambda before=before: version_of_the_same(session.client) != before)
        for child in producers:
            child.pipe.send("stop")
        assert sum(child.receive() for child in producers) >= n_saves
        assert [child.wait() for child in producers] == [0, 0]
    seen = set()
    with embedded() as session:
        client = session.client
        for number in range(n_saves):
            client.load_checkpoint(tmp_path / str(number))
            listed = client.kv_list("same").get("same", {})
            if listed:
                assert list(listed) == [f"k{n}" for n in range(8)]
                found = versions_of(client.kv_batch_get(list(listed), "same", mode="copy"))
                # All rows of one put, and the tags that came with it.
                assert {version for _, version in found} == {tags["v"] for tags in listed.values()}
                assert len({version for _, version in found}) == 1, found
                seen.add(found[0][1])
            if "groups" in client.get_partition_list():
                meta = client.get_meta(["n"], 0, "groups", mode="force_fetch")
                groups: dict[tuple[int, int], int] = {}
                for row, version in client.get_data(meta, mode="copy")["n"].tolist() if meta.size else []:
                    assert row // GROUP == version
                    groups[version, 0] = groups.get((version, 0), 0) + 1
                assert all(count in (GROUP, 2 * GROUP) for count in groups.values()), groups
    assert len(seen) > 1  # producers went on meanwhile


@pytest.fixture
def at_pause() -> Iterator[Callable[[str, Callable[[], object]], threading.Thread]]:
    """Starts a call in a thread and waits until it stands at a point."""
    if not _native.PAUSE_POINTS:
        pytest.skip("pause points are not compiled in")
    points: list[str] = []

    def start(point: str, call: Callable[[], object]) -> threading.Thread:
        points.append(point)
        _native.arm_pause(point, "stop")
        thread = threading.Thread(target=call)
        thread.start()
        wait_for(lambda: _native.paused(point), what=point)
        return thread

    yield start
    for point in points:
        _native.resume(point)


def test_blocks_retired_before_they_are_leased_are_not_saved(
    tmp_path: Path, at_pause: Callable[[str, Callable[[], object]], threading.Thread]
) -> None:
    with embedded() as session:
        client = session.client
        client.kv_batch_put(["a"], "p", rows([1], 1))
        client.kv_batch_put(["b"], "p", rows([2], 1))
        thread = at_pause("save.after_blocks", lambda: client.save_checkpoint(tmp_path / "c"))
        client.kv_batch_put(
            ["a"], "p", rows([1], 2)
        )  # the block of version 1 is retired, freed and its slot used again
        client.kv_clear(["b"], "p")
        client.kv_batch_put(["c"], "p", rows([3], 2))
        _native.resume("save.after_blocks")
        thread.join()
        client.load_checkpoint(tmp_path / "c")
        assert list(client.kv_list("p")["p"]) == ["a", "c"]
        assert versions_of(client.kv_batch_get(["a", "c"], "p", mode="copy")) == [(1, 2), (3, 2)]


def test_what_is_cleared_after_the_snapshot_is_written_all_the_same(
    tmp_path: Path, at_pause: Callable[[str, Callable[[], object]], threading.Thread]
) -> None:
    with embedded() as session:
        client = session.client
        meta = client.put(rows(range(8), 1), partition_id="p")
        thread = at_pause("save.after_snapshot", lambda: client.save_checkpoint(tmp_path / "c"))
        client.clear_partition("p")
        for _ in range(20):  # would reuse the space, were it free
            client.clear_samples(client.put(rows(range(8), 9), partition_id="q"))
        _native.resume("save.after_snapshot")
        thread.join()
        assert client.stats().leased_bytes == 0
        client.load_checkpoint(tmp_path / "c")
        assert versions_of(client.get_data(meta, mode="copy")) == [(n, 1) for n in range(8)]


def test_views_held_over_a_load_stay(tmp_path: Path) -> None:
    with embedded() as session:
        client = session.client
        client.kv_batch_put(["a", "b"], "p", rows([1, 2], 1))
        client.save_checkpoint(tmp_path / "c")
        client.kv_batch_put(["a", "b"], "p", rows([1, 2], 2))
        held = client.kv_batch_get(["a", "b"], "p")
        shared = client.kv_batch_get(["a", "b"], "p", mode="shared")
        client.load_checkpoint(tmp_path / "c")
        for n in range(10):
            client.put(rows([n], 5), partition_id="q")
        assert versions_of(held) == versions_of(shared) == [(1, 2), (2, 2)]
        assert versions_of(client.kv_batch_get(["a", "b"], "p", mode="copy")) == [(1, 1), (2, 1)]


def test_who_waits_for_rows_meets_those_of_a_checkpoint(tmp_path: Path) -> None:
    with embedded() as session:
        client = session.client
        client.kv_batch_put(["a"], "p", rows([1], 1))
        client.save_checkpoint(tmp_path / "c")
        client.clear_partition("p")
        found = []
        thread = threading.Thread(target=lambda: found.append(client.wait("p", fields=["x"], keys=["a"], timeout=30)))
        thread.start()
        client.load_checkpoint(tmp_path / "c")
        thread.join()
        assert torch.equal(client.get_data(found[0])["x"], rows([1], 1)["x"])


def test_a_choice_made_before_a_load_is_not_committed_after_it(tmp_path: Path) -> None:
    with embedded() as session:
        client = session.client
        client.put(rows(range(4), 1), partition_id="p")
        client.get_meta(["x"], 1, "p", task_name="t")
        client.save_checkpoint(tmp_path / "c")
        store = client._store
        before = store.task_snapshot("p", "t", ["x"])
        client.load_checkpoint(tmp_path / "c")
        assert not store.task_commit("p", "t", before.task_version, ["x"], before.ready[:1], b"")
        assert client.get_consumption_status("t", "p")[1].tolist() == [1, 0, 0, 0]  # type: ignore[union-attr]
