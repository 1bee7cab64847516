"""Tensors of an allocation that outlive its commit or abort, while somebody writes to them all the time."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

import transferqueue as tq
from tests.race import deeds
from tests.race.paused import Call, settled, stopped
from tests.support.sessions import wait_for
from tests.support.versioned_rows import WIDTH, rows
from transferqueue import TransferQueueClient

pytestmark = pytest.mark.timeout(120)


class Scribbler:
    """A thread that writes a counter over all of a tensor, again and again."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.count = 0
        self._stop = threading.Event()
        self._tensor: torch.Tensor | None = tensor
        self._call = Call(self._run)

    def _run(self) -> None:
        assert self._tensor is not None
        while not self._stop.is_set():
            self._tensor.fill_(self.count)
            self.count += 1

    def goes_on(self) -> None:
        """Waits until everything was written over at least twice from now on."""
        now = self.count
        wait_for(lambda: self.count > now + 2, what="writing")

    def end(self) -> None:
        self._stop.set()
        self._call.result()
        self._tensor = None


@pytest.mark.parametrize("point", ["producer.before_seal", "producer.sealed", "index.after_commit"])
def test_a_writer_through_the_whole_commit_never_reaches_the_store(client: TransferQueueClient, point: str) -> None:
    """Whatever it wrote before the tensors were cut off is stored; from the commit on nothing changes any more."""
    allocation = client.alloc({"x": ((WIDTH,), torch.int64)}, partition_id="p", batch_size=8)
    scribbler = Scribbler(allocation.data["x"])
    scribbler.goes_on()
    with stopped(point, allocation.commit) as commit:
        scribbler.goes_on()
    meta = commit.result()
    stored = client.get_data(meta, mode="copy")["x"]
    for _ in range(3):
        scribbler.goes_on()
        assert torch.equal(client.get_data(meta)["x"], stored)
    client.clear_samples(meta)
    client._store.reclaim()
    deeds.fill_all_room(client, 0xEE)
    scribbler.goes_on()
    filler = client.get_meta("x", 0, "filler", mode="force_fetch")
    for row in range(filler.size):
        assert client.get_data(filler.select_samples([row]))["x"].unique().tolist() == [0xEE]
    scribbler.end()


def test_a_writer_through_an_abort_writes_on_its_own_bytes_only(client: TransferQueueClient) -> None:
    """The extent is nobody else's until the tensor dies, and free right after."""
    allocation = client.alloc({"x": ((WIDTH,), torch.int64)}, partition_id="p", batch_size=8)
    scribbler = Scribbler(allocation.data["x"])
    allocation.abort()
    assert client.stats().pending_bytes >= 8 * WIDTH * 8
    deeds.fill_all_room(client, 0xEE)
    scribbler.goes_on()
    filler = client.get_meta("x", 0, "filler", mode="force_fetch")
    for row in range(filler.size):
        assert client.get_data(filler.select_samples([row]))["x"].unique().tolist() == [0xEE]
    scribbler.end()
    del filler, allocation, scribbler
    client.clear_partition("filler")
    settled(client)


def test_a_commit_that_is_refused_after_the_tensors_were_cut_off(client: TransferQueueClient) -> None:
    """Its rows are cleared between the seal and the transaction; the tensors stay usable, the space comes back."""
    meta = client.put(rows(range(8), 1), partition_id="p")
    allocation = client.alloc({"y": ((WIDTH,), torch.int64)}, partition_id="p", metadata=meta)
    kept = allocation.data["y"]
    kept.fill_(3)
    with stopped("put.before_publish", allocation.commit) as commit:
        client.clear_samples(meta)
    with pytest.raises(tq.StaleMetadataError):
        commit.result()
    deeds.fill_all_room(client, 0xEE)
    kept.fill_(4)
    assert kept.unique().tolist() == [4]
    filler = client.get_meta("x", 0, "filler", mode="force_fetch")
    for row in range(filler.size):
        assert client.get_data(filler.select_samples([row]))["x"].unique().tolist() == [0xEE]


def test_two_commits_of_one_allocation(client: TransferQueueClient) -> None:
    """From two threads at once: one publishes, the other is told; the rows are there once."""
    allocation = client.alloc({"x": ((WIDTH,), torch.int64)}, partition_id="p", batch_size=2)
    allocation.data["x"].fill_(5)
    with stopped("index.publish.before_commit", allocation.commit) as first:
        second = Call(allocation.commit)
    outcomes = []
    for call in (first, second):
        try:
            outcomes.append(call.result().size)
        except (RuntimeError, ValueError):
            outcomes.append(0)
    assert sorted(outcomes) == [0, 2]
    found = client.get_meta("x", 0, "p", mode="force_fetch")
    assert found.size == 2
    assert client.get_data(found)["x"].unique().tolist() == [5]


class Interrupted:
    """A store whose call is followed by an exception, as by Ctrl-C between two lines of the caller."""

    def __init__(self, store: Any, call: str) -> None:
        self._store = store
        self._call = call

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._store, name)
        if name != self._call:
            return function

        def interrupted(*arguments: Any, **options: Any) -> Any:
            function(*arguments, **options)
            raise KeyboardInterrupt

        return interrupted


@pytest.mark.parametrize("how", ["put", "commit", "coalesce"])
def test_an_interrupt_right_after_the_publication(
    client: TransferQueueClient, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """It is that interrupt that the caller sees, the rows are there, and nothing is left pending."""
    meta = tq.BatchMeta.concat([client.put(rows([number], 1), partition_id="p") for number in range(4)])
    allocation = client.alloc({"y": ((WIDTH,), torch.int64)}, partition_id="p", metadata=meta.copy())
    allocation.data["y"].fill_(2)
    monkeypatch.setattr(client, "_store", Interrupted(client._store, "move" if how == "coalesce" else "publish"))
    calls = {
        "put": lambda: client.put(rows(range(4), 2), metadata=meta.copy()),
        "commit": allocation.commit,
        "coalesce": lambda: client.coalesce(meta),
    }
    with pytest.raises(KeyboardInterrupt):
        calls[how]()
    calls.clear()
    monkeypatch.undo()
    if how != "commit":
        allocation.abort()
    assert deeds.read(client, meta) == [(number, 2 if how == "put" else 1) for number in range(4)]
    if how == "commit":
        assert client.get_data(meta, fields=["y"])["y"].unique().tolist() == [2]
    del allocation, calls
    client.clear_partition("p")
    settled(client)


def test_an_error_after_the_commit_of_an_allocation(
    client: TransferQueueClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows are committed; the error is the one that came, and abort has nothing to undo."""
    allocation = client.alloc({"y": ((WIDTH,), torch.int64)}, partition_id="p", keys=["a", "b"])
    allocation.data["y"].fill_(2)

    def fails(*_: Any) -> Any:
        raise tq.SessionNotFoundError("the session ended")

    monkeypatch.setattr(client, "_kv_meta", fails)
    with pytest.raises(tq.SessionNotFoundError):
        allocation.commit()
    monkeypatch.undo()
    allocation.abort()
    assert "committed" in repr(allocation)
    assert client.kv_batch_get(["a", "b"], "p")["y"].unique().tolist() == [2]
