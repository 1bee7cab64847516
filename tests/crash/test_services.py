"""kill -9 of storage services, and of a process that was armed through the environment before it started.

The service holds nothing of its own: no row is lost, puts and gets go on without one, and what it was cleaning up when
it died, the next one cleans up.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from tensordict import TensorDict

import transferqueue as tq
from tests.crash import adopters, victims
from tests.support.nursery import ROOT, Child, Nursery
from tests.support.sessions import SIZE, left_behind, wait_for
from tests.support.versioned_rows import rows, versions_of
from transferqueue.storage.names import new_session_name

pytestmark = pytest.mark.timeout(120)


def start_armed(nursery: Nursery, name: str, point: str) -> Child:
    """`tq serve` that dies when its housekeeping passes the point; serving already."""
    service = nursery.start(adopters.serve, name, point)
    assert service.receive().startswith("serving session")
    return service


def remains(nursery: Nursery, name: str, client: tq.TransferQueueClient) -> None:
    """A process dead with a reservation and with views of rows that were cleared while it lived."""
    meta = client.put(rows(range(100, 108), 1), partition_id="p")
    child = nursery.start(victims.hold_until_killed, name, meta)
    assert child.receive() == "holding"
    client.clear_samples(meta)
    child.kill()
    child.wait()


def clean(client: tq.TransferQueueClient) -> bool:
    stats = client.stats()
    lease_files = os.listdir(Path(client._attachment.paths.directory) / "leases")
    return stats.pending_bytes == stats.retired_bytes == 0 and len(lease_files) == 1


@pytest.mark.parametrize("point", ["reap.before_remove", "retire.before_scan", "index.free.before_commit"])
def test_a_service_that_dies_at_its_work(nursery: Nursery, point: str) -> None:
    name = new_session_name()
    service = start_armed(nursery, name, point)
    session = tq.init(session=name)
    try:
        assert not session.creator
        client = session.client
        session.service._next_look_s = time.monotonic() + 60  # this process does not take over yet
        kept = client.put(rows(range(8), 3), partition_id="p")
        remains(nursery, name, client)
        assert service.wait(60) == -signal.SIGKILL
        # Without any service: rows are there, new ones can be put and old ones cleared.
        assert versions_of(client.get_data(kept)) == [(number, 3) for number in range(8)]
        client.put(rows(range(8), 4), metadata=kept)
        remains(nursery, name, client)
        session.service._next_look_s = 0.0
        client.get_partition_list()
        assert session.service.running
        wait_for(lambda: clean(client), what="the work of the dead service")
        assert versions_of(client.get_data(kept)) == [(number, 4) for number in range(8)]
    finally:
        service.kill()
        tq.close()
    assert left_behind(name) == []


def test_a_process_armed_through_the_environment_dies_in_its_put(nursery: Nursery) -> None:
    """The same as the forked victims, in a process that was started afresh."""
    with tq.init(**{"storage.size": SIZE}) as session:
        client = session.client
        meta = client.put(rows(range(8), 1), partition_id="p")
        for point, version in (("index.publish.before_commit", 1), ("put.after_commit_before_wake", 2)):
            code = (
                "import sys, pickle; import transferqueue as tq; from tests.support.versioned_rows import rows\n"
                "tq.init(session=sys.argv[1])\n"
                "tq.put(rows(range(8), 2), metadata=pickle.loads(bytes.fromhex(sys.argv[2])))"
            )
            done = subprocess.run(
                [sys.executable, "-c", code, session.name, pickle.dumps(meta).hex()],
                env={**os.environ, "TRANSFERQUEUE_PAUSE": f"{point}=kill", "PYTHONPATH": str(ROOT)},
                timeout=100,
                check=False,
            )
            assert done.returncode == -signal.SIGKILL
            assert versions_of(client.get_data(meta)) == [(number, version) for number in range(8)]
            wait_for(lambda: clean(client), what="the return of what it held")


def test_the_embedded_service_goes_on_in_another_client(nursery: Nursery) -> None:
    """Of two clients left, exactly one takes the service over."""
    name = new_session_name()
    creator = nursery.start(victims.serve_until_killed, name)
    assert creator.receive() is True
    others = [nursery.start(victims.serve_until_killed, name) for _ in range(2)]
    assert [other.receive() for other in others] == [False, False]
    creator.kill()
    creator.wait()

    def running() -> list[bool]:
        for other in others:
            other.pipe.send("service?")
        return [other.receive() for other in others]

    wait_for(lambda: sum(running()) == 1, what="one new service")
    session = tq.init(session=name)
    try:
        data = TensorDict({"x": torch.arange(4)}, [4])
        assert session.client.get_data(session.client.put(data, partition_id="q"))["x"].tolist() == [0, 1, 2, 3]
        for other in others:
            other.kill()
            other.wait()
        session.service._next_look_s = 0.0
        session.client.get_partition_list()
        wait_for(lambda: len(session.client.stats().clients) == 1, what="the reaping of both")
    finally:
        tq.close()
    assert left_behind(name) == []
