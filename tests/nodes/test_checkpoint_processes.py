"""Saves of several nodes while others put and clear, and while nodes die."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from tests.nodes.processes import Processes, processes
from tests.support.nursery import Nursery
from tests.support.sessions import wait_for
from transferqueue.client.client import TransferQueueClient
from transferqueue.config import build_config
from transferqueue.errors import DataLostError, NodeUnreachableError
from transferqueue.service import StorageService
from transferqueue.storage.creation import create_session
from transferqueue.storage.names import new_session_name

pytest.importorskip("pyarrow.flight")
pytest.importorskip("xxhash")
pytestmark = pytest.mark.timeout(120)
GROUP = 4


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as started:
        yield started


@pytest.fixture(scope="module")
def cluster(nursery: Nursery) -> Iterator[Processes]:
    with processes(nursery, 3, "64MiB") as started:
        yield started


def _churn(pipe: Connection, client: Any, p: str) -> None:
    """Puts groups of rows of one number, overwrites some with another, clears others, whole groups each."""
    held: list[Any] = []
    number = 0
    pipe.send("ready")
    while not pipe.poll():
        number += 1
        rows = TensorDict({"x": torch.full((GROUP,), number), "y": torch.full((GROUP, 3), float(number))}, [GROUP])
        held.append(client.put(rows, partition_id=p))
        if len(held) > 6:
            client.clear_samples(held.pop(0))
        if number % 3 == 0:
            client.put(TensorDict({"x": torch.full((GROUP,), -number)}, [GROUP]), metadata=held[-2])
    pipe.send(number)


def _groups(client: TransferQueueClient, p: str) -> int:
    indexes, status = client.get_production_status(["x", "y"], p)
    assert bool(status.all())
    assert len(indexes) % GROUP == 0
    meta = client.get_meta(["x", "y"], len(indexes), p, mode="force_fetch", task_name="check")
    rows = client.get_data(meta)
    for first in range(0, len(indexes), GROUP):
        assert len(set(rows["x"][first : first + GROUP].tolist())) == 1
        assert len(set(rows["y"][first : first + GROUP].flatten().tolist())) == 1
    return len(indexes) // GROUP


def test_saves_are_whole_while_rows_come_and_go(nursery: Nursery, cluster: Processes, tmp_path: Path) -> None:
    cluster.client(0).place_partition("p")
    workers = [cluster.start(ordinal, _churn, "p") for ordinal in (0, 1)]
    for worker in workers:
        worker.receive()
    for number in range(4):
        time.sleep(0.2)
        cluster.client(2).save_checkpoint(tmp_path / str(number))
    for worker in workers:
        worker.pipe.send("stop")
    assert all(worker.receive() > 10 for worker in workers)
    assert all(worker.wait() == 0 for worker in workers)
    config = build_config({"storage.size": "64MiB"})
    attachment = create_session(new_session_name(), config)
    assert attachment is not None
    service = StorageService(attachment.paths, attachment.store, config)
    client = TransferQueueClient(attachment, config, service)
    try:
        for number in range(4):
            client.load_checkpoint(tmp_path / str(number))
            assert _groups(client, "p") >= 1
    finally:
        client.close()
        service.stop()
        attachment.end()
    cluster.client(1).load_checkpoint(tmp_path / "2")
    for ordinal in range(3):
        assert _groups(cluster.client(ordinal), "p") >= 1
    cluster.client(0).clear_partition("p")


def test_a_node_that_dies_while_it_saves(nursery: Nursery, cluster: Processes, tmp_path: Path) -> None:
    first, target = cluster.client(0), tmp_path / "step"
    rows = TensorDict({"x": torch.arange(24 << 20, dtype=torch.int32).view(4, -1)[:, : 1 << 20]}, [4])
    first.place_partition("big")
    meta = cluster.client(1).put(rows, partition_id="big")
    first.save_checkpoint(target, metadata="older")
    errors: list[BaseException | None] = []

    def save() -> None:
        try:
            first.save_checkpoint(target, metadata="newer")
            errors.append(None)
        except Exception as error:
            errors.append(error)

    for _ in range(20):
        saving = threading.Thread(target=save)
        saving.start()
        began = tmp_path / "step.tmp" / "n1-payload-partitions.arrow"
        while saving.is_alive() and not began.exists():
            pass
        os.kill(cluster.agents[1].pid, signal.SIGSTOP)
        time.sleep(0.2)
        if saving.is_alive():
            break
        os.kill(cluster.agents[1].pid, signal.SIGCONT)  # it was done by then
        saving.join()
    cluster.kill_agent(1)
    saving.join()
    assert isinstance(errors[-1], (DataLostError, NodeUnreachableError)), errors
    assert [path.name for path in tmp_path.iterdir()] == ["step"]
    cluster.restart_agent(1)
    links = [cluster.client(ordinal).link for ordinal in range(3)]
    wait_for(lambda: all(1 in link.alive() for link in links), 10.0, "node 1 to be known again")
    before = "newer" if None in errors else "older"
    assert cluster.client(2).load_checkpoint(target) == before
    for ordinal in range(3):
        assert torch.equal(cluster.client(ordinal).get_data(meta, fields=["x"])["x"], rows["x"])
    cluster.client(2).save_checkpoint(target, metadata="newest")
    assert cluster.client(1).load_checkpoint(target) == "newest"
    shutil.rmtree(target)
