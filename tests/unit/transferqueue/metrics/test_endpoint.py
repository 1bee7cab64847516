"""The endpoint: bound, then published; withdrawn; and when it cannot be had, a warning and a session that works."""

from __future__ import annotations

import builtins
import contextlib
import json
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
from tests.support.sessions import embedded
from transferqueue.metrics.server import MetricsServer
from transferqueue.storage.names import SessionPaths

pytestmark = pytest.mark.timeout(60)


@contextlib.contextmanager
def listener(host: str = "127.0.0.1") -> Iterator[int]:
    """A port that is taken."""
    with socket.socket() as taken:
        taken.bind((host, 0))
        taken.listen()
        yield taken.getsockname()[1]


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def works(session: tq.Session) -> bool:
    meta = session.client.put(TensorDict({"x": torch.arange(2)}, [2]), partition_id="p")
    return bool(session.client.get_data(meta)["x"].tolist() == [0, 1])


def test_off_unless_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    assert tq.get_metrics_endpoint() is None, "no session"
    with embedded(**{"metrics.enabled": False, "metrics.port": 0}) as session:
        assert tq.get_metrics_endpoint() is None
        assert works(session)
    with embedded():
        assert tq.get_metrics_endpoint() is None
    assert warnings_of(caplog) == []


@pytest.mark.parametrize("given", [{"metrics.port": 0}, {"metrics.enabled": True}])
def test_any_free_port(given: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    with embedded(**given) as session:
        address = tq.get_metrics_endpoint()
        assert address is not None
        assert address.startswith("127.0.0.1:")
        assert works(session)
        for _ in range(2):
            found = scrape(address)
            assert found.value("puts_total") == session.client.stats().puts == 1
            assert found.value("gets_total") == found.value("get_seconds_count") == session.client.stats().gets == 1
            assert found.value("storage_total_bytes") == 64 << 20
    assert tq.get_metrics_endpoint() is None
    assert warnings_of(caplog) == []
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), timeout=5).close()


@pytest.mark.parametrize("host", ["::1", "[::1]", "::"])
def test_ipv6(host: str) -> None:
    with embedded(**{"metrics.port": 0, "metrics.host": host}):
        address = tq.get_metrics_endpoint()
        assert address is not None
        assert address.startswith("[")
        port = address.rpartition(":")[2]
        assert scrape(f"[::1]:{port}").value("up") == 1


def test_a_taken_port_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with listener() as port, embedded(**{"metrics.port": port}) as session:
        assert tq.get_metrics_endpoint() is None
        assert works(session)
        (warning,) = warnings_of(caplog)
        assert str(port) in warning
        assert "metrics.port" in warning
        assert session.name in warning


def test_a_host_of_somebody_else_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with embedded(**{"metrics.port": 0, "metrics.host": "192.0.2.7"}) as session:
        assert tq.get_metrics_endpoint() is None
        assert works(session)
        assert "192.0.2.7" in warnings_of(caplog)[0]


def test_without_the_library_a_warning_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = builtins.__import__

    def missing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith(("prometheus_client", "transferqueue.metrics.server")):
            raise ImportError(f"No module named {name!r}")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    with embedded(**{"metrics.port": 0}) as session:
        assert tq.get_metrics_endpoint() is None
        assert works(session)
        assert "pip install 'transferqueue-shm[metrics]'" in warnings_of(caplog)[0]


def test_an_address_that_a_killed_service_left_is_not_believed() -> None:
    with embedded(**{"metrics.port": 0}) as session:
        session.service.stop()
        path = Path(SessionPaths.of(session.name).metrics_endpoint)
        assert not path.exists(), "withdrawn by the service that ended"
        path.write_text(json.dumps({"endpoint": "127.0.0.1:1", "pid": 1}))
        address = tq.get_metrics_endpoint()
        assert address != "127.0.0.1:1"
        assert scrape(address).value("up") == 1
        path.write_text("{")
        assert tq.get_metrics_endpoint() is None


def test_a_forked_child_does_not_keep_the_port() -> None:
    reads, writes = os.pipe()
    with embedded(**{"metrics.port": 0}) as session:
        address = tq.get_metrics_endpoint()
        assert address is not None
        host, _, port = address.rpartition(":")
        child = os.fork()
        if child == 0:
            os.close(writes)
            os.read(reads, 1)
            os._exit(0)
        os.close(reads)
        try:
            assert scrape(address).value("up") == 1, "the parent goes on"
            session.service.stop()
            with socket.socket() as again:
                again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # the connection of the scrape lingers
                again.bind((host, int(port)))
                again.listen()
        finally:
            os.close(writes)
            os.waitpid(child, 0)


def test_thirty_two_at_once_each_get_a_port() -> None:
    with embedded() as session:
        servers = [
            MetricsServer(session.attachment.store, session=session.name, version="1", host="127.0.0.1", port=0)
            for _ in range(32)
        ]
        threads = [threading.Thread(target=server.serve) for server in servers]
        for thread in threads:
            thread.start()
        assert len({server.port for server in servers}) == 32
        assert [scrape(server.address).value("up") for server in servers] == [1] * 32
        for server in servers:
            server.close()
        for thread in threads:
            thread.join(20)
        assert not any(thread.is_alive() for thread in threads), "asleep in accept for ever"


def test_clients_that_say_nothing_or_hang_up_keep_nobody_waiting() -> None:
    with embedded(**{"metrics.port": 0}):
        address = tq.get_metrics_endpoint()
        assert address is not None
        host, _, port = address.rpartition(":")
        silent = [socket.create_connection((host, int(port))) for _ in range(5)]
        with socket.create_connection((host, int(port))) as rude:
            rude.sendall(b"GET /metrics HT")
        assert scrape(address).value("up") == 1
        for connection in silent:
            connection.close()
