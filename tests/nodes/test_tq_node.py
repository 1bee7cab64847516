"""Sessions on several nodes without Ray: `tq node` on each, here several on one machine."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from pathlib import Path

import pytest

import transferqueue as tq
from tests.nodes import workers
from tests.nodes.batches import fill, mebibytes
from tests.support.certificates import authority
from tests.support.nodes import LOST_AFTER_S, Nodes, nodes_of
from tests.support.nursery import Nursery
from tests.support.sessions import janitors, left_behind, wait_for
from transferqueue import cli
from transferqueue.node_service import node_session
from transferqueue.node_service.node_report import NodeStats
from transferqueue.nodes.local_sessions import clusters_here, local_sessions
from transferqueue.nodes.rpc_client import RpcClient

pytest.importorskip("pyarrow.flight")
pytestmark = pytest.mark.timeout(180)


def seen_from(part: str) -> list[NodeStats]:
    session = tq.attach(part)
    try:
        return session.nodes()
    finally:
        tq.close()


def test_processes_of_a_node_are_in_the_session_of_all(nursery: Nursery, nodes: Nodes) -> None:
    children = [nursery.start(workers.attached, nodes.part(number)) for number in (0, 1)]
    for number, child in enumerate(children):
        assert child.receive() == (nodes.name, nodes.name, nodes.part(number), False)
    found = seen_from(nodes.part(1))
    assert [(node.ordinal, node.node_id, node.session, node.alive, node.here) for node in found] == [
        (0, "machine-0", nodes.part(0), True, False),
        (1, "machine-1", nodes.part(1), True, True),
    ]
    assert [f"{node.host}:{node.port}" for node in found] == [process.endpoint for process in nodes.processes]
    for child in children:
        child.pipe.send("close")
        assert child.receive() == "closed"
    assert all(process.child._status is None for process in nodes.processes)  # closing ended nothing


def test_the_environment_of_a_process_names_its_node(nursery: Nursery, nodes: Nodes) -> None:
    child = nursery.start(workers.by_environment, nodes.part(1))
    assert child.receive() == (nodes.name, nodes.name, [0, 1])


def test_of_two_nodes_on_one_machine_a_process_must_say_which(nodes: Nodes) -> None:
    assert [found.paths.name for found in local_sessions(nodes.name)] == [nodes.part(0), nodes.part(1)]
    assert nodes.name in clusters_here()
    with pytest.raises(tq.SessionNotFoundError, match=rf"{nodes.part(0)}.*{nodes.part(1)}.*say which one"):
        tq.attach(nodes.name)
    session = tq.attach(nodes.part(0))
    assert tq.attach(nodes.name) is session
    assert tq.init(session=nodes.name) is session
    with pytest.raises(tq.SessionNotFoundError, match="one session at a time"):
        tq.attach(nodes.part(1))
    tq.close()


def test_global_indexes_of_nodes_are_apart(nursery: Nursery, nodes: Nodes) -> None:
    rows = [nursery.start(workers.makes_rows, nodes.part(number), "apart", 3).receive() for number in (0, 1)]
    assert rows == [[0, 1, 2], [(1 << 50) + row for row in range(3)]]


def test_a_full_node_is_named_with_its_address(nodes: Nodes) -> None:
    named = [
        f"node {number} (machine-{number} at {process.endpoint})" for number, process in enumerate(nodes.processes)
    ]
    try:
        home = tq.attach(nodes.part(0)).client
        home.place_partition("at-the-full")
        filler = fill(home, "filler")
        tq.close()
        there = tq.attach(nodes.part(1)).client
        own = there.put(mebibytes(1), partition_id="own")
        with pytest.raises(tq.StorageFullError) as caught:
            there.prefetch(own, node=0, timeout=1.2)
        assert caught.value.node == named[0]
        with pytest.raises(tq.StorageFullError, match=rf"^{re.escape(named[0])}: no room") as caught:
            there.put(mebibytes(1), partition_id="at-the-full", timeout=0.3)
        assert caught.value.node == named[0]
        fill(there, "own filler")
        with pytest.raises(tq.StorageFullError, match=rf"^{re.escape(named[1])}: no room") as caught:
            there.get_data(filler, timeout=0.3)
        assert caught.value.node == named[1]
        for partition in ("filler", "own", "own filler"):
            there.clear_partition(partition)
    finally:
        tq.close()


def test_tq_nodes_lists_them(nodes: Nodes, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["nodes", "--session", nodes.name]) == 0
    shown = capsys.readouterr().out
    for number, process in enumerate(nodes.processes):
        assert re.search(
            rf"^{number}\s+alive.*machine-{number}\s+{process.endpoint}\s+{nodes.part(number)}", shown, re.M
        )
    assert cli.main(["nodes", "--session", nodes.name, "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [node["ordinal"] for node in listed["nodes"]] == [0, 1]
    assert listed["nodes"][0]["total_bytes"] == 16 << 20
    assert cli.main(["nodes", "--session", "no-such"]) == 1
    assert "no node of a session 'no-such'" in capsys.readouterr().err


def test_who_joins_without_a_copy_of_the_token_is_told_whence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["node", "--join", "127.0.0.1:1", "--token-file", str(tmp_path / "token")]) == 1
    assert f"there is no {tmp_path / 'token'}: --token-file is a copy of the file that the head made" in (
        capsys.readouterr().err
    )


def test_who_has_another_token_does_not_get_in(
    nodes: Nodes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = tmp_path / "token"
    wrong.write_text("f" * 64)
    wrong.chmod(0o600)
    join = ["node", "--join", nodes.processes[0].endpoint, "--name", "stranger", "--token-file"]
    assert cli.main([*join, str(wrong)]) == 1
    assert "token" in capsys.readouterr().err
    wrong.chmod(0o644)
    assert cli.main([*join, str(wrong)]) == 1
    assert "open to other users" in capsys.readouterr().err
    assert [node.node_id for node in seen_from(nodes.part(0))] == ["machine-0", "machine-1"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--join", "nowhere"], "HOST:PORT"),
        (["--head", "../x"], "no session name"),
        (["--head", "x" * 60], "up to 58 characters"),
    ],
)
def test_what_cannot_be_a_node_is_refused(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["node", *arguments, "--token-file", str(tmp_path / "token")]) == 1
    assert said in capsys.readouterr().err


def test_a_second_node_of_one_name_is_refused(
    nodes: Nodes, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_session, "_LOCK_WAIT_S", 0.2)
    join = ["node", "--join", nodes.processes[0].endpoint, "--token-file", str(nodes.token_file)]
    assert cli.main([*join, "--name", "machine-1"]) == 1
    assert "has an agent already" in capsys.readouterr().err


def test_a_killed_agent_comes_back_with_its_rows(nursery: Nursery, nodes: Nodes) -> None:
    rows = nursery.start(workers.makes_rows, nodes.part(1), "kept", 5).receive()
    nodes.processes[1].kill()
    again = nodes.restart(1)
    assert nursery.start(workers.lists_rows, nodes.part(1), "kept").receive() == rows
    wait_for(lambda: seen_from(nodes.part(0))[1].alive, what="that the directory knows it")
    second = seen_from(nodes.part(0))[1]
    assert (second.ordinal, f"{second.host}:{second.port}") == (1, again.endpoint)
    assert len(janitors(nodes.part(1))) == 1


def test_a_killed_head_comes_back_and_is_told_of_all(nursery: Nursery, nodes: Nodes) -> None:
    nursery.start(workers.makes_rows, nodes.part(1), "at-one", 1).receive()
    worker = nursery.start(workers.puts_and_gets, nodes.part(1), "q")
    assert worker.receive() == 1
    nodes.processes[0].kill()
    worker.pipe.send(2)
    assert worker.receive() == 2, "the home is known"
    nodes.restart(0)
    worker.pipe.send(None)
    wait_for(lambda: len(seen_from(nodes.part(1))) == 2, what="that all nodes have joined again")
    assert [(node.ordinal, node.alive) for node in seen_from(nodes.part(0))] == [(0, True), (1, True)]
    # A node that is new gets a number that nobody had.
    third = nodes.add()
    assert local_sessions(nodes.name, node_id="machine-2")[0].file.ordinal == 2
    # One that leaves takes its rows with it, and its number.
    assert third.stop() == 0
    assert left_behind(nodes.part(2)) == []
    wait_for(lambda: not seen_from(nodes.part(0))[2].alive, what="that it is lost")
    del nodes.processes[2]
    fourth = nodes.add()
    assert local_sessions(nodes.name, node_id="machine-2")[0].paths.name == nodes.part(3), fourth.output()


@pytest.mark.soak  # its keeper holds it for 23 s
def test_who_does_not_come_back_is_lost_and_leaves_nothing(nursery: Nursery, tmp_path: Path) -> None:
    with nodes_of(nursery, tmp_path, 2) as started:
        gone = started.processes.pop()
        assert left_behind(started.part(1)) != []
        gone.kill()
        wait_for(lambda: not seen_from(started.part(0))[1].alive, LOST_AFTER_S + 10.0, "that it is lost")
        wait_for(lambda: left_behind(started.part(1)) == [], LOST_AFTER_S + 40.0, "that nothing is left of it")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made with openssl")
def test_a_session_with_certificates_ends_on_all_nodes(
    nursery: Nursery, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tls = authority(tmp_path, "ours")
    keys = {"cluster.tls_cert": tls.cert, "cluster.tls_key": tls.key, "cluster.tls_ca": tls.ca}
    with nodes_of(nursery, tmp_path, 2, everywhere={**keys, "cluster.tls_verify_clients": "true"}) as started:
        child = nursery.start(workers.attached, started.part(1))
        child.receive()
        assert [node.alive for node in seen_from(started.part(1))] == [True, True]
        join = ["node", "--join", started.processes[0].endpoint, "--token-file", str(started.token_file)]
        assert cli.main([*join, "--set", f"cluster.tls_cert={tls.cert}"]) == 1
        assert "belong together" in capsys.readouterr().err
        place = seen_from(started.part(0))[0]
        shows_none = RpcClient(place.host, place.port, token=started.token_file.read_text().strip(), tls=tls)
        with pytest.raises(tq.NodeUnreachableError):
            shows_none.call("members.nodes", {}, until_s=time.monotonic() + 1.0)
        shows_none.close()
    assert left_behind(started.name) == []
    child.pipe.send("close")
    assert child.receive() == "closed"
    assert not os.path.exists(f"/dev/shm/tq-{os.getuid()}-{started.name}.n1")
