"""Names of whatever content: stored as they are, never a path, never obeyed by a terminal."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict

import transferqueue as tq
from tests.support.scrape import scrape
from tests.support.sessions import embedded, in_child, wait_for
from transferqueue import logs
from transferqueue.cli import main
from transferqueue.printable import printable
from transferqueue.storage.names import SessionPaths

pytestmark = pytest.mark.timeout(120)

CLEAR = "\x1b[2J\x1b]0;owned\x07"  # clears the screen and renames the window of a terminal that obeys
NAMES = ["../../etc/passwd", "/", "a\nb\tc", CLEAR, "\u202egnp", " ", "'; DROP TABLE rows; --", "%s%n{0}"]
LONG = "ä" * 512_000  # 1 MB


def strange_files(session: str | None = None) -> list[str]:
    """Files in shared memory that have this session's name, or none that ours or Ray's have."""
    usual = ("tq-", ".tq-", "native-", "plasma", "sem.")
    names = os.listdir("/dev/shm")
    return sorted(name for name in names if not name.startswith(usual) or (session is not None and session in name))


@pytest.fixture(scope="module")
def session() -> Iterator[tq.Session]:
    with embedded(**{"metrics.port": 0}) as found:
        yield found


@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name[:8]))
def test_partitions_fields_keys_and_tags_of_any_name(session: tq.Session, name: str, tmp_path: Path) -> None:
    before = strange_files(session.name)
    client = session.client
    data = TensorDict({"x": torch.arange(2)}, [2])
    try:
        meta = client.kv_batch_put([name, "other"], name, data, tags=[{name: name}, {}])
        assert client.kv_batch_get([name], name, mode="copy")["x"].tolist() == [0]
        assert client.kv_list(name) == {name: {name: {name: name}, "other": {}}}
        assert meta.partition_id == name
        client.put(TensorDict({name: torch.arange(2)}, [2]), partition_id=name)
        assert name in client.get_partition_list()
        client.save_checkpoint(tmp_path / "c")
        client.load_checkpoint(tmp_path / "c")
        assert client.kv_batch_get([name], name, mode="copy")["x"].tolist() == [0]
        with pytest.raises(tq.KeyNotFoundError) as caught:
            client.kv_batch_get([name + "?"], name)
        assert printable(str(caught.value), lines=True) == str(caught.value)
    finally:
        client.clear_partition(name)
    assert strange_files(session.name) == before
    assert sorted(os.listdir(tmp_path)) == ["c"]


def test_names_of_a_megabyte_are_stored_or_refused_in_a_few_words(session: tq.Session) -> None:
    client = session.client
    data = TensorDict({"x": torch.arange(1)}, [1])
    calls = (
        lambda: client.put(data, partition_id=LONG),
        lambda: client.put(TensorDict({LONG: torch.arange(1)}, [1]), partition_id="long"),
        lambda: client.kv_batch_put([LONG], "long", data),
        lambda: client.kv_batch_put(["k"], "long", data, tags=[{LONG: LONG}]),
    )
    refused = []
    for call in calls:
        try:
            call()
        except ValueError as error:
            refused.append(str(error))
    assert [text for text in refused if len(text) > 500 or "bytes" not in text] == []
    client.clear_partition(LONG)
    client.clear_partition("long")
    assert client.get_partition_list() == []
    assert client.kv_batch_put(["k"], "p", data).keys == ["k"]
    client.clear_partition("p")


def test_names_with_nul_are_refused_before_anything_is_stored(session: tq.Session) -> None:
    for call in (
        lambda: session.client.put(TensorDict({"x": torch.arange(1)}, [1]), partition_id="a\0b"),
        lambda: session.client.put(TensorDict({"a\0b": torch.arange(1)}, [1]), partition_id="nul"),
    ):
        with pytest.raises(ValueError, match="NUL"):
            call()
    assert session.client.get_partition_list() == []


@pytest.mark.parametrize("name", ["../x", "a/b", "..", ".", "/etc", "a\0b", "a\nb", CLEAR, "x" * 65, "-rf"])
def test_a_session_name_is_no_path(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = strange_files()
    for call in (SessionPaths.of, tq.attach, lambda name: tq.init(session=name)):
        with pytest.raises(ValueError, match="no session name"):
            call(name)
    assert main(["stats", f"--session={name}"]) == 1
    assert "\x1b" not in capsys.readouterr().err
    assert strange_files() == before


def test_a_session_name_of_the_environment_is_no_path() -> None:
    def look() -> None:
        tq.close()  # of the parent, if any
        os.environ["TRANSFERQUEUE_SESSION"] = "../../tmp/x"
        with pytest.raises(ValueError, match="no session name"):
            tq.init()

    assert in_child(look) == 0


def test_terminals_are_not_sent_what_names_hold(session: tq.Session, capsys: pytest.CaptureFixture[str]) -> None:
    client = session.client
    client.kv_put(CLEAR, CLEAR, {CLEAR: torch.ones(100_000)}, {CLEAR: CLEAR})
    view = client.kv_batch_get([CLEAR], CLEAR)
    try:
        arguments = ["--session", session.name]
        for command in (["ls"], ["stats", *arguments], ["inspect", CLEAR, *arguments], ["config", *arguments]):
            assert main(command) == 0
        assert main(["leases", *arguments]) == 0
        assert main(["inspect", f"no{CLEAR}", *arguments]) == 1
        shown = capsys.readouterr()
        for text in (shown.out, shown.err):
            assert printable(text, lines=True) == text
            assert "\\x1b[2J" in text
        with pytest.raises(tq.FieldNotReadyError) as caught:
            client.kv_batch_get([CLEAR], CLEAR, [f"{CLEAR}?"])
        assert "\x1b" not in str(caught.value)
        assert len(view) == 1
    finally:
        client.clear_partition(CLEAR)


def test_logs_are_not_sent_what_names_hold(capsys: pytest.CaptureFixture[str]) -> None:
    kept, logging.getLogger().handlers = logging.getLogger().handlers, []
    try:
        logs.configure("WARNING")
        logs.get_logger("test").warning("partition %s", CLEAR)
        printed = capsys.readouterr().err
    finally:
        logging.getLogger().handlers = kept
    assert "\\x1b[2J" in printed
    assert "\x1b" not in printed


@pytest.mark.parametrize(
    ("text", "shown", "in_lines"),
    [
        ("plain ä 日本", "plain ä 日本", "plain ä 日本"),
        ("a\nb\t", "a\\nb\\t", "a\nb\t"),
        ("\x1b[0m\x07\x9b\x7f\r", "\\x1b[0m\\x07\\x9b\\x7f\\r", "\\x1b[0m\\x07\\x9b\\x7f\\r"),
        ("\u202e\u2028\ud800", "\\u202e\\u2028\\ud800", "\\u202e\\u2028\\ud800"),
    ],
)
def test_what_is_no_text_is_escaped_and_escaped_once(text: str, shown: str, in_lines: str) -> None:
    assert printable(text) == shown
    assert printable(text, lines=True) == in_lines
    assert printable(printable(text)) == shown


REQUESTS = [
    b"",
    b"\0" * 4096,
    b"GET",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET " + b"/" * 70_000 + b" HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 500 + b"\r\n",
    b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    b"POST /metrics HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\nx",
    b"DELETE /../../etc/passwd HTTP/1.1\r\nHost: \xff\xfe\r\n\r\n",
    b"GET /metrics?name[]=%00%ff HTTP/1.1\r\nAccept: " + b"a/b;q=x," * 50 + b"\r\n\r\n",
    bytes(range(256)) * 4,
]


def test_the_metrics_port_is_local_and_survives_what_is_no_request(
    session: tq.Session, capsys: pytest.CaptureFixture[str]
) -> None:
    address = tq.get_metrics_endpoint()
    assert address is not None
    host, _, port = address.rpartition(":")
    assert host == "127.0.0.1"
    session.client.kv_put("secret key", "p", {"secret": torch.tensor(5)}, {"tag": "secret value"})
    answers = [_answer(port, request) for request in REQUESTS]
    assert not any(b"secret" in answer or b"Traceback" in answer or b"root:" in answer for answer in answers)
    for _ in range(3):
        assert scrape(address).value("up") == 1
    session.client.clear_partition("p")
    assert "Traceback" not in capsys.readouterr().err


def _answer(port: str, request: bytes) -> bytes:
    found = b""
    with socket.create_connection(("127.0.0.1", int(port)), timeout=20) as connection:
        try:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            while piece := connection.recv(65536):
                found += piece
        except ConnectionError:
            pass  # hung up on
    return found


def test_whoever_opens_many_connections_gets_no_threads_for_them(session: tq.Session) -> None:
    address = tq.get_metrics_endpoint()
    assert address is not None
    before = threading.active_count()
    many = [socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2]))) for _ in range(200)]
    try:
        wait_for(lambda: _hung_up(many) > 100, what="being hung up on")
        assert threading.active_count() <= before + 70
    finally:
        for connection in many:
            connection.close()
    wait_for(lambda: threading.active_count() <= before + 1, what="the end of the threads")
    assert scrape(address).value("up") == 1


def _hung_up(connections: list[Any]) -> int:
    count = 0
    for connection in connections:
        connection.setblocking(False)
        try:
            count += connection.recv(1) == b""
        except BlockingIOError:
            continue
        except ConnectionError:
            count += 1
    return count
