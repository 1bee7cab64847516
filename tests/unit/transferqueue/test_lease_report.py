"""Who holds what, since when: `Session.leases` and `tq leases`."""

from __future__ import annotations

import gc
import json
import os
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import pytest
import torch
from tensordict import TensorDict

import transferqueue as tq
from tests.support.quiet import without_service
from tests.support.sessions import Forked, embedded, in_child, wait_for
from transferqueue.cli import main
from transferqueue.lease_report import LeaseStats, command_of, summary

pytestmark = pytest.mark.timeout(60)
MIB = 1 << 20


@pytest.fixture(scope="module")
def module_session() -> Iterator[tq.Session]:
    with embedded() as found, without_service(found):
        yield found


@pytest.fixture
def session(module_session: tq.Session) -> Iterator[tq.Session]:
    yield module_session
    for partition in module_session.client.get_partition_list():
        module_session.client.clear_partition(partition)
    wait_for(lambda: module_session.leases() == [], what="the end of the leases")
    module_session.attachment.store.reclaim()


def put(partition: str, rows: int = 2) -> tq.BatchMeta:
    """`rows` MiB in two fields, viewed when read whole."""
    half = torch.arange(rows * MIB // 16).reshape(rows, -1)
    return tq.put(TensorDict({"x": half, "y": half + 1}, [rows]), partition_id=partition)


def only(leases: list[LeaseStats]) -> LeaseStats:
    assert len(leases) == 1, leases
    return leases[0]


def shown(capsys: Any, session: tq.Session, *arguments: str) -> str:
    assert main(["leases", "--session", session.name, *arguments]) == 0
    return str(capsys.readouterr().out)


def test_a_view_is_listed_with_who_holds_what(session: tq.Session) -> None:
    held = tq.get_data(put("p"))
    lease = only(session.leases())
    assert (lease.pid, lease.owner, lease.alive) == (os.getpid(), session.attachment.store.owner, True)
    assert "python" in lease.command
    assert (lease.partition, lease.rows, lease.fields, lease.views) == ("p", 2, 2, 1)
    assert lease.nbytes == lease.live_bytes == 2 * MIB
    assert not lease.retired
    assert lease.pinned_bytes == 0
    assert 0 <= lease.age_s < 60
    again = tq.get_data(tq.get_meta(["x"], 0, "p", mode="force_fetch"))
    assert only(session.leases()).views == 2, "of one block, in one line"
    del held, again


def test_what_was_cleared_meanwhile_is_said(session: tq.Session) -> None:
    meta, other = put("p", 4), put("q")
    held, of_one_row = tq.get_data(meta), tq.get_data(other[:1])
    session.client.clear_samples(meta[:1])
    assert only(session.leases("p")).live_bytes == 3 * MIB
    session.client.clear_partition("p")
    session.client.clear_samples(other[1:])
    # Under the name that the partition had, also when there is another one of that name.
    put("p")
    cleared, partly = only(session.leases("p")), only(session.leases("q"))
    assert cleared.retired
    assert (cleared.rows, cleared.fields, cleared.live_bytes, cleared.pinned_bytes) == (4, 2, 0, 4 * MIB)
    assert (partly.retired, partly.live_bytes, partly.nbytes, partly.pinned_bytes) == (False, MIB, 2 * MIB, 0)
    assert session.client.stats().retired_bytes == 4 * MIB
    assert summary(session.leases()).startswith(
        "1 process with views of 2 blocks: 6.0 MiB; 4.0 MiB of it in blocks without"
    )
    assert held.batch_size == torch.Size([4])
    del held, of_one_row
    assert session.leases() == []
    assert summary([]) == "nobody holds a view"
    assert summary([], "p") == "nobody holds a view of partition 'p'"


def test_the_oldest_is_first_and_a_block_read_again_keeps_its_age(session: tq.Session) -> None:
    old = tq.get_data(put("old"))
    wait_for(lambda: session.leases()[0].age_s > 0.05)
    young = tq.get_data(put("young"))
    again = tq.get_data(tq.get_meta(["x"], 0, "old", mode="force_fetch"))
    leases = session.leases()
    assert [lease.partition for lease in leases] == ["old", "young"]
    assert leases[0].views == 2
    assert leases[0].age_s > 0.04 + leases[1].age_s
    del old
    # What is left of that block is the later read.
    assert {lease.partition: lease.age_s for lease in session.leases()}["old"] < leases[0].age_s + 0.04
    del young, again


def test_children_have_their_parents_views_since_the_parent_made_them(session: tq.Session) -> None:
    held = [tq.get_data(put("p"))]
    wait_for(lambda: only(session.leases()).age_s > 0.1)

    def child(parent: Connection) -> None:
        parent.send("born")
        parent.recv()
        assert held[0]["x"][0, 1] == 1
        parent.send([(lease.pid == os.getpid(), lease.age_s > 0.1) for lease in session.leases()])
        parent.recv()

    forked = Forked(child)
    assert forked.hear() == "born"
    held.clear()
    lease = only(session.leases())
    assert lease.pid == forked.pid
    assert lease.age_s > 0.1
    forked.say()
    assert forked.hear() == [(True, True)]
    forked.kill()
    dead = only(session.leases())
    assert (dead.alive, dead.command, dead.partition) == (False, "", "p")
    session.attachment.store.reap()
    assert session.leases() == []


class Cycle:
    """Holds a view and itself."""

    def __init__(self, view: Any) -> None:
        self.view = view
        self.itself = self


def test_field_case_86_a_reference_cycle_that_keeps_a_view_is_found(session: tq.Session, capsys: Any) -> None:
    meta = put("train_0")
    gc.disable()
    try:
        cycle = Cycle(tq.get_data(meta))
        session.client.clear_samples(meta)
        del cycle
        first = json.loads(shown(capsys, session, "--json"))
        assert (first["session"], first["processes"], first["blocks"]) == (session.name, 1, 1)
        assert first["pinned_bytes"] == first["nbytes"] == 2 * MIB
        found = first["leases"][0]
        assert (found["pid"], found["partition"], found["retired"]) == (os.getpid(), "train_0", True)
        time.sleep(0.05)
        later = json.loads(shown(capsys, session, "--json", "--partition", "train_0"))["leases"][0]
        assert later["age_s"] > found["age_s"] + 0.02
        assert later["block"] == found["block"]
        lines = shown(capsys, session).splitlines()
        assert "1 process with views of 1 block: 2.0 MiB; 2.0 MiB of it in blocks without rows" in lines[0]
        assert lines[2].split("\t")[0] == str(os.getpid())
        assert lines[2].split("\t")[2:-1] == ["train_0", f"{found['block']:x}", "2", "2", "2.0 MiB", "all", "1"]
        assert json.loads(shown(capsys, session, "--json", "--partition", "other"))["leases"] == []
        assert session.client.stats().retired_bytes == 2 * MIB
        gc.collect()
    finally:
        gc.enable()
    assert "nobody holds a view" in shown(capsys, session)
    session.attachment.store.reclaim()
    assert session.client.stats().retired_bytes == 0


def test_field_case_72_rows_written_and_never_read_are_counted(session: tq.Session, capsys: Any) -> None:
    """The step that would have consumed them was aborted: they are counted, and a clear of the partition frees them."""
    put("train_0", 4)
    claim = tq.claim("actor", "train_0", fields="x", batch_size=2, lease_s=60, partial=True, timeout=1.0)
    assert claim is not None
    assert session.client.stats("train_0").rows["unconsumed"] == 4, "given out, and nobody said it was done with them"
    assert main(["stats", "--session", session.name]) == 0
    table = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    header = next(line for line in table if "unconsumed_rows" in line)
    row = next(line for line in table if line[0] == "train_0")
    assert row[header.index("unconsumed_rows")] == "4"
    tq.ack(claim)
    assert session.client.stats("train_0").rows["unconsumed"] == 2
    session.client.clear_partition("train_0")
    assert session.client.stats().rows["unconsumed"] == 0
    assert session.client.stats().used_bytes == 0


def test_commands_are_those_of_the_process_that_was_meant() -> None:
    with open("/proc/self/stat", "rb") as file:
        started_s = int(file.read().rpartition(b")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    assert "python" in command_of(os.getpid(), started_s)
    assert command_of(os.getpid(), started_s + 3) == "", "of that pid, but not the one that was meant"
    assert command_of(0, 0.0) == ""


def test_a_session_that_was_left_says_so(session: tq.Session) -> None:
    assert session.leases() == []
    assert in_child(lambda: leave_and_ask(session)) == 0


def leave_and_ask(session: tq.Session) -> None:
    session.close()
    with pytest.raises(tq.ClosedError):
        session.leases()
