"""More processes than anybody planned for."""

from __future__ import annotations

import os
from multiprocessing.connection import Connection

import pytest
import torch

import transferqueue as tq
from tests.support.sessions import Forked, embedded, wait_for

pytestmark = pytest.mark.timeout(240)


def use(connection: Connection) -> None:
    client = tq.attach(connection.recv()).client
    number = connection.recv()
    client.kv_put(f"k{number}", "p", {"x": torch.full((20_000,), number)})
    view = client.kv_batch_get(f"k{number}", "p")["x"]
    connection.send(view.unique().tolist())
    connection.recv()


@pytest.mark.parametrize("count", [80, pytest.param(300, marks=pytest.mark.soak)])
def test_hundreds_of_clients_at_once(count: int) -> None:
    children = [Forked(use) for _ in range(count)]
    try:
        with embedded() as session:
            for number, child in enumerate(children):
                child.say(session.name)
                child.say(number)
            for number, child in enumerate(children):
                assert child.hear(120) == [number]
            clients = tq.stats().clients
            assert len(clients) == count + 1
            assert sum(entry.leases for entry in clients) == count
            for child in children[: count // 2]:
                child.kill()
            for child in children[count // 2 :]:
                child.say("done")
                assert child.join() == 0
            wait_for(lambda: [entry.pid for entry in tq.stats().clients] == [os.getpid()], what="reaping all of them")
            assert len(tq.kv_list("p")["p"]) == count
            tq.get_client().clear_partition("p")
            assert tq.stats().used_bytes == 0
            assert os.listdir(f"/dev/shm/tq-{os.getuid()}-{session.name}/leases") != []
    finally:
        for child in children:
            child.kill()
