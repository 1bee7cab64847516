"""The session that the processes of a Ray cluster share without being told its name."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch

import transferqueue as tq
from tests.support.sessions import SIZE, janitors, left_behind, wait_for
from transferqueue import cluster

pytestmark = pytest.mark.timeout(120)


class User:
    """An ordinary actor that uses the queue."""

    def session(self, init: bool) -> str:
        import transferqueue as tq

        return tq.init().name if init else tq.get_client().session

    def put(self, key: str, value: int) -> None:
        import torch

        import transferqueue as tq

        tq.kv_put(key, "p", {"x": torch.tensor(value)})

    def outcome(self) -> str:
        import transferqueue as tq

        try:
            return str(list(tq.kv_list()))
        except tq.TransferQueueError as error:
            return type(error).__name__

    def close(self) -> None:
        import transferqueue as tq

        tq.close()


def test_processes_of_a_cluster_find_one_session(ray_cluster: Any) -> None:
    actor = ray_cluster.remote(User)
    users = [actor.remote() for _ in range(3)]
    call = ray_cluster.get
    with pytest.raises(tq.SessionNotFoundError, match=r"init\(\) in the controller \(the driver\)"):
        call(users[0].session.remote(init=False))
    session = tq.init(**{"storage.size": SIZE})
    assert session.creator
    assert cluster.find_session() == session.name
    assert [call(user.session.remote(init=number > 1)) for number, user in enumerate(users)] == [session.name] * 3
    assert len(janitors(session.name)) == 1

    call(users[0].put.remote("k", 5))
    assert tq.kv_batch_get("k", "p")["x"].tolist() == [5]
    call(users[0].close.remote())
    assert call(users[0].outcome.remote()) == "ClosedError"
    assert call(users[1].outcome.remote()) == "['p']"

    tq.close()
    assert cluster.find_session() is None
    assert call(users[1].outcome.remote()) == "SessionNotFoundError"
    assert left_behind(session.name) == []

    second = tq.init(**{"storage.size": SIZE})
    assert second.name != session.name
    assert call(users[0].session.remote(init=True)) == second.name
    assert call(users[1].session.remote(init=True)) == second.name
    assert call(users[1].outcome.remote()) == "[]"
    for user in users:
        ray_cluster.kill(user)
    wait_for(lambda: [entry.pid for entry in tq.stats().clients] == [os.getpid()], what="reaping the actors")
    tq.close()
    wait_for(lambda: not janitors(session.name) and not janitors(second.name), what="the end of the janitors")
    assert left_behind(second.name) == []


def test_a_registered_session_whose_processes_died_is_replaced(ray_cluster: Any) -> None:
    assert ray_cluster.is_initialized()
    assert cluster.register_session("died-before") == "died-before"
    assert cluster.register_session("other") == "died-before"
    session = tq.init(**{"storage.size": SIZE})
    assert session.name not in ("died-before", "other")
    assert cluster.find_session() == session.name
    tq.kv_put("k", "p", {"x": torch.tensor(1)})
    tq.close()
    assert cluster.find_session() is None
