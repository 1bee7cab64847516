"""Every call of a client is in one class of `routes`, and nowhere else."""

from __future__ import annotations

import inspect

from transferqueue.client.client import TransferQueueClient
from transferqueue.client.cluster_client import ClusterClient
from transferqueue.client.routes import LOCAL, OWN, PAYLOAD_CALLS, ROUTED


def public(cls: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(cls) if not name.startswith("_")}


def test_every_public_method_is_in_exactly_one_class() -> None:
    classes = [set(ROUTED), set(PAYLOAD_CALLS), set(LOCAL)]
    assert sum(map(len, classes)) == len(set().union(*classes))
    calls = {name for name in public(ClusterClient) if not name.startswith("async_")} - {"link"}
    assert calls == set().union(*classes)


def test_asynchronous_forms_are_of_the_same_methods() -> None:
    blocking = {name for name in public(ClusterClient) if not name.startswith("async_")}
    for name in public(ClusterClient):
        if name.startswith("async_"):
            assert name.removeprefix("async_") in blocking
            assert getattr(ClusterClient, name) is not getattr(TransferQueueClient, name, None) or name.removeprefix(
                "async_"
            ) in PAYLOAD_CALLS | {"trim", "save_storage_checkpoint", "load_storage_checkpoint"}


def test_routed_calls_have_the_arguments_of_the_client_s() -> None:
    for name, route in ROUTED.items():
        if route.by != OWN:
            routed, plain = getattr(ClusterClient, name), getattr(TransferQueueClient, name)
            assert list(inspect.signature(routed).parameters) == list(inspect.signature(plain).parameters), name
            assert routed is not plain
            if route.waits:
                assert "timeout" in inspect.signature(plain).parameters
