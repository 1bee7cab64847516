"""init, attach, close: one system of a Ray cluster, seen from the driver and from its actors."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from omegaconf import DictConfig, OmegaConf
from tensordict import TensorDict

import transferqueue as native
from tests.support.sessions import left_behind
from transferqueue.compat import transfer_queue as tq
from transferqueue.compat.ray_system import CONTROLLER_NAME, NAMESPACE
from transferqueue.compat.transfer_queue import interface

pytestmark = pytest.mark.timeout(120)
SIZE = {"transferqueue": {"storage": {"size": "64MiB"}}}
KEYS = ["a", "b"]


@pytest.fixture
def system(ray_cluster: Any) -> Iterator[DictConfig]:
    made = tq.init(SIZE)
    assert isinstance(made, DictConfig)
    yield made
    tq.close()
    assert left_behind(made.controller.zmq_info["session"]) == []


@pytest.fixture(scope="module")
def users(ray_cluster: Any) -> list[Any]:
    """Actors that use whatever system there is; they know nothing of a session."""

    class User:
        def call(self, name: str, *args: Any) -> Any:
            return getattr(tq, name)(*args)

        async def async_call(self, name: str, *args: Any) -> Any:
            tq.kv_list()  # the blocking form on the loop's own thread
            return await getattr(tq, f"async_{name}")(*args)

        def client_call(self, client: Any, name: str, *args: Any) -> Any:
            return getattr(client, name)(*args)

        def session(self) -> str:
            return tq.get_client().session

    actor = ray_cluster.remote(User)
    return [actor.options(num_cpus=0).remote() for _ in range(3)]


def put_two(value: float) -> tq.KVBatchMeta:
    return tq.kv_batch_put(KEYS, "p", TensorDict({"x": torch.full((2, 3), value)}, [2]), [{"n": 0}, {"n": 1}])


def test_the_first_init_starts_and_the_second_attaches(system: DictConfig, ray_cluster: Any) -> None:
    assert system.backend.storage_backend == "SimpleStorage"
    assert system.controller.polling_mode is False
    assert interface._TQ_CONTROLLER is not None
    put_two(1.0)
    given = OmegaConf.create({"controller": {"polling_mode": True}})
    assert tq.init(given) is given
    assert tq.init() is None
    assert tq.kv_list() == {"p": {"a": {"n": 0}, "b": {"n": 1}}}
    held = ray_cluster.get(ray_cluster.get_actor(CONTROLLER_NAME, namespace=NAMESPACE).get_config.remote())
    assert held == system
    # The node's session of the native face, too.
    assert native.get_client().session == system.controller.zmq_info["session"]


def test_an_actor_attaches_by_its_first_call(system: DictConfig, ray_cluster: Any, users: list[Any]) -> None:
    meta = put_two(1.0)
    first, second, third = users
    batch, again, read = ray_cluster.get(
        [
            first.call.remote("kv_batch_get", KEYS, "p"),
            second.async_call.remote("kv_batch_get_by_meta", meta),
            third.client_call.remote(tq.get_client(), "kv_list"),
        ]
    )
    assert batch["x"].is_nested
    assert [row.tolist() for row in again["x"].unbind()] == [[1.0] * 3] * 2
    assert read == {"p": {"a": {"n": 0}, "b": {"n": 1}}}
    assert ray_cluster.get(first.call.remote("init", {"ignored": 1})) == {"ignored": 1}
    assert ray_cluster.get(first.session.remote()) == tq.get_client().session
    # Metadata of the low-level calls travels as it is.
    low = tq.get_client().get_meta(["x"], 2, "p", task_name="t")
    assert type(ray_cluster.get(ray_cluster.put(low))) is tq.BatchMeta
    read = ray_cluster.get(third.client_call.remote(tq.get_client(), "get_data", low))
    assert read["x"].is_nested


def test_close_in_one_actor_leaves_the_others_at_work(system: DictConfig, ray_cluster: Any, users: list[Any]) -> None:
    put_two(1.0)
    leaving, staying, late = users
    for actor in (leaving, staying):
        ray_cluster.get(actor.call.remote("kv_list"))
    ray_cluster.get([leaving.call.remote("close"), leaving.call.remote("close")])
    with pytest.raises(ValueError):
        ray_cluster.get_actor(CONTROLLER_NAME, namespace=NAMESPACE)
    for actor in (staying, late):
        batch = ray_cluster.get(actor.call.remote("kv_batch_get", KEYS, "p"))
        assert batch["x"].unbind()[0].tolist() == [1.0] * 3
    put_two(2.0)
    with pytest.raises(AssertionError, match=r"has not been initialized yet. Please call init\(\) first."):
        ray_cluster.get(leaving.call.remote("kv_list"))


def test_after_close_an_init_starts_an_empty_system(ray_cluster: Any, users: list[Any]) -> None:
    actor = users[0]
    sessions = []
    for value in (1.0, 2.0):
        made = tq.init(SIZE)
        assert isinstance(made, DictConfig)
        sessions.append(made.controller.zmq_info["session"])
        assert tq.kv_list() == {}
        put_two(value)
        # An actor that was in the first system finds the second by itself.
        batch = ray_cluster.get(actor.call.remote("kv_batch_get", KEYS, "p"))
        assert batch["x"].unbind()[0].tolist() == [value] * 3
        tq.close()
        tq.close()
        assert left_behind(sessions[-1]) == []
    assert sessions[0] != sessions[1]
    with pytest.raises(AssertionError, match=r"has not been initialized yet. Please call init\(\) first."):
        tq.kv_list()
    with pytest.raises(AssertionError, match=r"has not been initialized yet. Please call init\(\) first."):
        asyncio.run(tq.async_kv_list())
    with pytest.raises(AssertionError, match="Please initialize the TransferQueue first by calling"):
        tq.get_client()
    assert interface._TQ_CONTROLLER is None


def test_of_several_that_init_at_once_one_starts_the_system(ray_cluster: Any, users: list[Any]) -> None:
    answers = ray_cluster.get([actor.call.remote("init", SIZE) for actor in users])
    sessions = set(ray_cluster.get([actor.session.remote() for actor in users]))
    assert len(sessions) == 1
    assert any(isinstance(answer, DictConfig) for answer in answers)
    ray_cluster.get([actor.call.remote("close") for actor in users])
    assert left_behind(sessions.pop()) == []


def test_what_controller_sampler_may_be(ray_cluster: Any) -> None:
    class Last(tq.BaseSampler):
        def sample(self, ready_indexes: list[int], batch_size: int, *args: Any, **kwargs: Any) -> Any:
            chosen = ready_indexes[-batch_size:]
            return chosen, chosen

    objects: Any = {"allow_objects": True}
    for sampler in ("GRPOGroupNSampler", Last, Last()):
        config = OmegaConf.create({"controller": {"sampler": sampler, "polling_mode": True}, **SIZE}, flags=objects)
        try:
            tq.init(config)
            meta = tq.get_client().put(TensorDict({"x": torch.arange(3)}, [3]), partition_id="p")
            got = tq.get_client().get_meta(["x"], 1, "p", task_name="t")
            assert got.global_indexes == meta.global_indexes[: 1 if isinstance(sampler, str) else None][-1:]
        finally:
            tq.close()
    with pytest.raises(ValueError, match="Could not find sampler NoSampler"):
        tq.init({"controller": {"sampler": "NoSampler"}})
    with pytest.raises(AssertionError):
        tq.get_client()


def test_threads_and_loops_at_once(system: DictConfig) -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        async def by_loop() -> None:
            for step in range(5):
                key = f"{number}-{step}"
                await tq.async_kv_put(key, "p", {"x": torch.full((2,), float(number))})
                assert tq.kv_batch_get(key, "p")["x"][0].tolist() == [float(number)] * 2

        try:
            asyncio.run(by_loop())
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(tq.kv_list("p")["p"]) == 20


def test_metrics_when_they_are_asked_for(ray_cluster: Any) -> None:
    assert tq.get_metrics_endpoint() is None
    tq.init({"metrics": {"enabled": True, "port": 0}, **SIZE})
    try:
        endpoint = tq.get_metrics_endpoint()
        assert endpoint is not None
        assert int(endpoint.rpartition(":")[2]) > 0
    finally:
        tq.close()
    assert tq.get_metrics_endpoint() is None
