"""gRPC does not survive a fork: a child's calls go through a helper program, and nothing of the parent's is touched."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.unit.native.native_session import exit_status, fork
from tests.unit.transferqueue.nodes.serving import client_of, serving
from transferqueue.errors import FieldNotReadyError, NodeAccessError
from transferqueue.nodes import connection
from transferqueue.nodes.flight_library import flight
from transferqueue.nodes.rpc_server import Call, RpcServer

pytestmark = pytest.mark.timeout(90)


def soon(seconds: float) -> float:
    return time.monotonic() + seconds


def fail(call: Call) -> None:
    raise FieldNotReadyError("not yet", fields=("x",))


def test_children_call_with_clients_that_were_in_use() -> None:
    ended = threading.Event()
    with serving({"pid": lambda call: (os.getpid(), call.args), "fail": fail}) as server:
        client, other = client_of(server), client_of(server)
        client.call("pid", {}, until_s=soon(20))

        def keep_calling() -> None:
            while not ended.is_set():
                other.call("pid", {}, until_s=soon(20))

        busy = threading.Thread(target=keep_calling)
        busy.start()
        parent = os.getpid()

        def child() -> None:
            assert client.call("pid", {"n": 1}, until_s=soon(30)) == (parent, {"n": 1})
            with pytest.raises(FieldNotReadyError):
                other.call("fail", {}, until_s=soon(30))
            with pytest.raises(NodeAccessError):
                client_of(server, token="x").call("pid", {}, until_s=soon(30))
            answers = []
            threads = [
                threading.Thread(target=lambda: answers.append(client.call("pid", {}, until_s=soon(30))))
                for _ in range(3)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert answers == [(parent, {})] * 3
            with pytest.raises(RuntimeError, match="forked"), serving():
                pass
            assert exit_status(fork(grandchild)) == 0

        def grandchild() -> None:
            assert client.call("pid", {}, until_s=soon(30)) == (parent, {})

        try:
            assert exit_status(fork(child)) == 0
        finally:
            ended.set()
            busy.join()
        assert client.call("pid", {}, until_s=soon(20)) == (parent, {})


def test_a_fork_while_another_thread_makes_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is half made has nothing to keep, and what else there is is kept all the same."""
    connecting, going_on = threading.Event(), threading.Event()

    class SlowFlight:
        def __getattr__(self, name: str) -> Any:
            return getattr(flight(), name)

        def connect(self, *args: Any, **options: Any) -> Any:
            connecting.set()
            assert going_on.wait(60)
            return flight().connect(*args, **options)

    with serving({"m": lambda call: 1}) as server:
        # They are in a set: in whatever order it goes, some come behind the half made one.
        clients = [client_of(server) for _ in range(4)]
        for client in clients:
            client.call("m", {}, until_s=soon(20))
        late = client_of(server)
        monkeypatch.setattr(connection, "flight", SlowFlight)
        maker = threading.Thread(target=lambda: late.call("m", {}, until_s=soon(60)))
        maker.start()
        assert connecting.wait(20)

        def child() -> None:
            monkeypatch.undo()
            for client in [*clients, late]:
                assert client.call("m", {}, until_s=soon(30)) == 1

        try:
            assert exit_status(fork(child)) == 0
        finally:
            going_on.set()
            maker.join()


PROGRAM = """
import faulthandler, os, sys
from transferqueue.nodes.rpc_client import RpcClient
from transferqueue.nodes.rpc_server import RpcServer
server = RpcServer("127.0.0.1", 0, token="t", handlers={"m": lambda call: 1})
client = RpcClient("127.0.0.1", server.port, token="t")
client.call("m", {}, until_s=None)
for careful in (True, False):
    pid = os.fork()
    if pid == 0:
        faulthandler.dump_traceback_later(30, exit=True)
        if careful:
            client.close()
            server.shutdown()
        sys.exit(7)  # not os._exit: destructors and what runs at exit are what could hang
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
assert client.call("m", {}, until_s=None) == 1
"""


def test_a_child_ends_as_any_process_does() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], timeout=80, check=False, stderr=subprocess.PIPE, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_the_helper_ends_with_its_process() -> None:
    reading, writing = os.pipe()

    def child(server: RpcServer) -> None:
        client_of(server).call("m", {}, until_s=soon(30))
        from transferqueue.nodes import relay_connection

        assert relay_connection._relay is not None
        os.write(writing, str(relay_connection._relay._program.pid).encode())

    with serving({"m": lambda call: 1}) as server:
        client_of(server).call("m", {}, until_s=soon(20))
        assert exit_status(fork(lambda: child(server))) == 0
    helper = int(os.read(reading, 20))
    os.close(reading)
    os.close(writing)
    until_s = soon(20)
    while _runs(helper):
        assert time.monotonic() < until_s
        time.sleep(0.02)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
