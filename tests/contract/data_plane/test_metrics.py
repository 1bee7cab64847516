"""Metrics of many processes at one endpoint: exact while they work, and after any of them was killed."""

from __future__ import annotations

import signal
import socket
from typing import Any

import pytest
import torch
from tensordict import TensorDict

import transferqueue as tq
from tests.support.scrape import Scrape, scrape
from tests.support.sessions import Forked, left_behind, start_service, stop, wait_for
from transferqueue.storage.names import new_session_name

pytestmark = pytest.mark.timeout(90)
PUTS, GETS, ROWS = 60, 90, 4


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def work(connection: Any) -> None:
    """So many puts and gets; then waits to be told to leave, or to be killed."""
    session = tq.attach(connection.recv())
    client = session.client
    meta = None
    for number in range(PUTS):
        data = TensorDict({"x": torch.full((ROWS, 8), number, dtype=torch.int64)}, [ROWS])
        meta = client.put(data, partition_id="p")
    for _ in range(GETS):
        assert client.get_data(meta)["x"].shape == (ROWS, 8)
    connection.send(tq.get_metrics_endpoint())
    connection.recv()
    session.close()


def counters(found: Scrape) -> dict[Any, float]:
    return {
        key: value for key, value in found.samples.items() if key[0].endswith(("_total", "_count", "_bucket", "_sum"))
    }


def check_counts(found: Scrape, workers: int) -> None:
    assert found.value("puts_total") == found.value("put_seconds_count") == workers * PUTS
    assert found.value("put_rows_total") == found.value("rows", partition="p", state="ready") == workers * PUTS * ROWS
    assert found.value("put_bytes_total") == workers * PUTS * ROWS * 64
    assert found.value("gets_total") == found.value("get_seconds_count") == workers * GETS
    assert found.value("get_rows_total") == workers * GETS * ROWS
    assert found.value("get_bytes_total", how="copied") == workers * GETS * ROWS * 64
    assert found.value("get_seconds_bucket", le="+Inf") == workers * GETS


def test_counts_are_exact_and_outlive_clients_and_service() -> None:
    workers = [Forked(work) for _ in range(3)]
    name, port = new_session_name(), free_port()
    service = start_service(name, "--set", f"metrics.port={port}")
    address = f"127.0.0.1:{port}"
    try:
        assert service.stdout is not None
        assert service.stdout.readline() == f"metrics at http://{address}/metrics\n"
        for worker in workers:
            worker.say(name)
        before = scrape(address)
        while before.value("gets_total") < 2 * GETS:  # scraped while they work
            after = scrape(address)
            later = counters(after)
            assert all(later[key] >= value for key, value in counters(before).items() if key in later)
            before = after
        assert [worker.hear() for worker in workers] == [address] * 3
        check_counts(scrape(address), 3)
        assert scrape(address).value("clients", state="alive") == 4

        leaves, dies, stays = workers
        leaves.say()
        assert leaves.join() == 0
        dies.kill()
        wait_for(lambda: scrape(address).value("reaped_clients_total") == 1, what="reaping")
        check_counts(scrape(address), 3)

        last = counters(scrape(address))
        stop(service, signal.SIGKILL)
        with pytest.raises(OSError):
            scrape(address)
        session = tq.attach(name)
        assert tq.get_metrics_endpoint() == address, "the first who asks takes the service over, and its port"
        assert session.service.running
        adopted = scrape(address)
        check_counts(adopted, 3)
        assert all(counters(adopted)[key] >= value for key, value in last.items())
        assert session.client.stats().puts == 3 * PUTS
        assert session.client.stats().gets == 3 * GETS
        stays.say()
        assert stays.join() == 0
        tq.close()
    finally:
        stop(service)
        for worker in workers:
            worker.kill()
        tq.close()
    assert left_behind(name) == []
