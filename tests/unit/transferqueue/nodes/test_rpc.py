"""Calls: answered once however often they are attempted, through cut networks and restarts, by their owners only."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any

import pyarrow.flight as fl
import pytest

from tests.unit.transferqueue.nodes.serving import HOST, TOKEN, Proxy, client_of, serving
from transferqueue.errors import CorruptSegmentError, FieldNotReadyError, NodeAccessError, NodeUnreachableError
from transferqueue.nodes import messages
from transferqueue.nodes.connection import CALL
from transferqueue.nodes.envelopes import Request, read_answer
from transferqueue.nodes.rpc_server import Call

pytestmark = pytest.mark.timeout(60)


class Counting:
    """A handler that takes a while, and knows how often it was run."""

    def __init__(self, takes_s: float = 0.0) -> None:
        self.calls: list[Call] = []
        self.takes_s = takes_s

    def __call__(self, call: Call) -> Any:
        self.calls.append(call)
        time.sleep(self.takes_s)
        return len(self.calls)


def soon(seconds: float) -> float:
    return time.monotonic() + seconds


def test_a_call_arrives_whole_and_its_answer_too() -> None:
    seen = []
    with serving({"m": lambda call: seen.append(call) or call.args}) as server:
        answer = client_of(server).call("m", {"x": (1, {2})}, until_s=soon(20), request_id=bytes(16))
    assert answer == {"x": (1, {2})}
    assert seen[0].request_id == bytes(16)
    assert 0 < seen[0].left_s <= 20
    assert str(os.getpid()) in seen[0].caller


def test_errors_of_handlers_are_raised_at_the_caller() -> None:
    def fail(call: Call) -> None:
        raise FieldNotReadyError("not yet", fields=("x",))

    with serving({"fail": fail, "odd": lambda call: object()}) as server:
        client = client_of(server)
        with pytest.raises(FieldNotReadyError) as caught:
            client.call("fail", {}, until_s=None)
        assert caught.value.fields == ("x",)
        with pytest.raises(TypeError, match="cannot go to another node"):
            client.call("odd", {}, until_s=None)
        with pytest.raises(NotImplementedError, match="no method 'missing'"):
            client.call("missing", {}, until_s=None)
        with pytest.raises(TypeError, match="cannot go to another node"):
            client.call("odd", {"x": object()}, until_s=None)


def test_a_slow_call_is_attempted_again_and_run_once() -> None:
    slow = Counting(0.9)  # longer than a first attempt of the main thread
    with serving({"slow": slow}) as server:
        assert client_of(server).call("slow", {}, until_s=None) == 1
    assert len(slow.calls) == 1


def test_attempts_at_the_same_time_share_one_run() -> None:
    slow, answers = Counting(0.4), []
    with serving({"slow": slow}) as server:
        client = client_of(server)
        request_id = b"the same request"
        threads = [
            threading.Thread(
                target=lambda: answers.append(client.call("slow", {}, until_s=soon(20), request_id=request_id))
            )
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert client.call("slow", {}, until_s=soon(20), request_id=request_id) == 1
    assert answers == [1] * 4
    assert len(slow.calls) == 1


def test_a_cut_network_delays_calls_and_nothing_happens_twice() -> None:
    done = Counting()
    with serving({"m": done}) as server, Proxy(server.port) as proxy:
        client = client_of(proxy)
        assert client.call("m", {}, until_s=soon(20)) == 1
        proxy.cut()
        threading.Timer(1.5, proxy.mend).start()
        began_s = time.monotonic()
        assert client.call("m", {}, until_s=soon(30), attempt_s=0.4) == 2
        assert time.monotonic() - began_s > 1.0
        assert len({call.request_id for call in done.calls}) == len(done.calls) == 2


def test_an_answer_lost_on_the_way_is_given_again() -> None:
    done = Counting()
    with serving({"m": done}) as server, Proxy(server.port) as proxy:
        client = client_of(proxy)
        client.call("m", {}, until_s=soon(20))
        done.takes_s = 0.3
        threading.Timer(0.15, proxy.reset).start()  # the request has arrived, the answer has not
        assert client.call("m", {}, until_s=soon(20)) == 2
    assert len(done.calls) == 2


def test_the_deadline_is_kept_whatever_is_wrong() -> None:
    with serving({"slow": lambda call: call.stopping.wait(20)}) as server, Proxy(server.port) as proxy:
        began_s = time.monotonic()
        with pytest.raises(NodeUnreachableError) as caught:
            client_of(proxy, node="node 7").call("slow", {}, until_s=soon(0.8))
        assert time.monotonic() - began_s > 0.7
        assert caught.value.node == "node 7"
        proxy.cut()
        with pytest.raises(TimeoutError):
            client_of(proxy).call("slow", {}, until_s=soon(0.3))
    with socket.create_server((HOST, 0)) as nobody:
        port = nobody.getsockname()[1]
    proxy.port = port
    with pytest.raises(NodeUnreachableError, match="node"):
        client_of(proxy).call("m", {}, until_s=soon(0.3))


def test_a_server_that_comes_back_is_found() -> None:
    with serving({"m": Counting()}) as server:
        client, port = client_of(server), server.port
        client.call("m", {}, until_s=soon(20))
    answers = []
    thread = threading.Thread(target=lambda: answers.append(client.call("m", {}, until_s=soon(30))))
    thread.start()
    time.sleep(0.3)
    with serving({"m": Counting()}, port=port):
        thread.join(30)
    assert answers == [1]


def test_without_the_token_nothing_is_served() -> None:
    done = Counting()
    with serving({"m": done}) as server:
        for token in ("", "another", TOKEN + "x", TOKEN[:-1]):
            with pytest.raises(NodeAccessError):
                client_of(server, token=token).call("m", {}, until_s=soon(20))
        bare = fl.connect(f"grpc://{HOST}:{server.port}")
        for use in (
            lambda: list(bare.do_action(fl.Action(CALL, b""))),
            lambda: bare.do_get(fl.Ticket(b"")).read_all(),
            lambda: list(bare.list_flights()),
            lambda: bare.list_actions(),
        ):
            with pytest.raises(fl.FlightUnauthenticatedError):
                use()
        bare.close()
    assert done.calls == []


def test_a_server_listens_on_its_address_only() -> None:
    with serving() as server, pytest.raises(OSError):
        socket.create_connection(("127.0.0.2", server.port), timeout=2.0)


def test_a_taken_port_is_refused() -> None:
    with serving() as server, pytest.raises(OSError), serving(port=server.port):
        pass


def test_large_values_go_both_ways() -> None:
    value = os.urandom(24 << 20)
    with serving({"m": lambda call: call.args["value"]}) as server:
        assert client_of(server).call("m", {"value": value}, until_s=soon(50)) == value


def test_hostile_bodies_are_answered_by_errors() -> None:
    with serving({"m": Counting()}) as server:
        bare = fl.connect(f"grpc://{HOST}:{server.port}")
        options = fl.FlightCallOptions(headers=[(b"authorization", f"Bearer {TOKEN}".encode())])
        good = Request("m", {}, bytes(16), None, "me").encode()
        for body in (
            b"",
            bytes([messages.MESSAGE_VERSION, 0xC1]),
            good[:-3],
            messages.encode({"a": 1}),
            b"\x80" * 1000,
        ):
            [result] = bare.do_action(fl.Action(CALL, body), options)
            with pytest.raises((CorruptSegmentError, ValueError)):
                read_answer(result.body)
        with pytest.raises(NotImplementedError):
            list(bare.do_action(fl.Action("other", good), options))
        with pytest.raises(NotImplementedError):
            bare.do_get(fl.Ticket(b"x"), options).read_all()
        [result] = bare.do_action(fl.Action(CALL, good), options)
        assert read_answer(result.body) == (True, 1)
        bare.close()


def test_a_call_can_be_interrupted() -> None:
    def interrupt(call: Call) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        call.stopping.wait(20)

    with serving({"m": interrupt}) as server:
        began_s = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            client_of(server).call("m", {}, until_s=soon(30))
        assert time.monotonic() - began_s < 15


def test_a_server_that_ends_tells_its_handlers() -> None:
    with serving({"wait": lambda call: call.stopping.wait(30)}) as server:
        answers = []
        client = client_of(server)
        thread = threading.Thread(target=lambda: answers.append(client.call("wait", {}, until_s=soon(20))))
        thread.start()
        time.sleep(0.3)
    thread.join(20)
    assert answers == [True]


EXIT = """
import threading, time
from transferqueue.nodes.rpc_client import RpcClient
from transferqueue.nodes.rpc_server import RpcServer
begun = threading.Event()
def wait(call):
    begun.set()
    call.stopping.wait(40)
server = RpcServer("127.0.0.1", 0, token="t", handlers={"wait": wait})
client = RpcClient("127.0.0.1", server.port, token="t")
threading.Thread(target=lambda: client.call("wait", {}, until_s=time.monotonic() + 40), daemon=True).start()
begun.wait()
"""


def test_a_process_that_forgets_its_server_ends() -> None:
    began_s = time.monotonic()
    assert subprocess.run([sys.executable, "-c", EXIT], timeout=50, check=False).returncode == 0
    assert time.monotonic() - began_s < 30
