"""A Ray cluster of several nodes on this machine, and what runs in it."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.sessions import wait_for
from tests.support.warm_workers import warm_workers
from transferqueue.cluster.directory_handle import NAMESPACE

CPUS = 16


class RayNodes:
    """Nodes by a letter, which is also a resource that only this node has: ``{"b": 1}`` places on node b."""

    def __init__(self, ray: Any, cluster: Any) -> None:
        self.ray = ray
        self.cluster = cluster
        self.nodes: dict[str, Any] = {}

    def add(self, letter: str) -> str:
        """Starts a node; its Ray id."""
        self.nodes[letter] = self.cluster.add_node(
            num_cpus=CPUS, resources={letter: 100.0}, include_dashboard=False, object_store_memory=80 << 20
        )
        return self.id_of(letter)

    def id_of(self, letter: str) -> str:
        return str(self.nodes[letter].node_id)

    def letter_of(self, node_id: str | None) -> str:
        """The letter of the node with that Ray id."""
        [found] = [letter for letter, node in self.nodes.items() if str(node.node_id) == node_id]
        return found

    def remove(self, letter: str) -> None:
        """As if the machine died."""
        self.cluster.remove_node(self.nodes.pop(letter), allow_graceful=False)

    def on(self, letter: str, function: Any, *arguments: Any, fresh: bool = False, timeout_s: float = 90.0) -> Any:
        """What a function of a module returns in a task on that node; `fresh`: in a process that runs nothing else."""
        # Ray gives processes of one environment to tasks of no other.
        apart = {"runtime_env": {"env_vars": {"TQ_TEST_APART": secrets.token_hex(4)}}} if fresh else {}
        task = self.ray.remote(function).options(num_cpus=0, resources={letter: 1.0}, max_retries=0, **apart)
        return self.ray.get(task.remote(*arguments), timeout=timeout_s)


def pid_of(actor: str) -> int | None:
    """The process of a named actor of ours; None: there is none, or it is being started."""
    import ray

    try:
        handle = ray.get_actor(actor, namespace=NAMESPACE)
        return int(ray.get(handle.__ray_call__.remote(lambda _: os.getpid()), timeout=60.0))
    except (ValueError, ray.exceptions.RayActorError):
        return None


def node_of(actor: str) -> str | None:
    """Ray's id of the node on which a named actor of ours runs; None: there is none, or it is being started."""
    import ray

    try:
        handle = ray.get_actor(actor, namespace=NAMESPACE)
        there = handle.__ray_call__.remote(lambda _: ray.get_runtime_context().get_node_id())
        return str(ray.get(there, timeout=60.0))
    except (ValueError, ray.exceptions.RayActorError):
        return None


def kill(pid: int | None) -> None:
    """SIGKILL, and waits until it is gone."""
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not _runs(pid), what="the end of a killed process")


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@contextlib.contextmanager
def ray_nodes_of(*letters: str) -> Iterator[RayNodes]:
    """A cluster whose first node is that of this process, which is its driver."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    for name, value in {
        "RAY_worker_niceness": "0",
        "RAY_prestart_worker_first_driver": "0",
        "RAY_AUTH_MODE": "disabled",
    }.items():
        os.environ.setdefault(name, value)
    with warm_workers():
        cluster = Cluster()
        try:
            nodes = RayNodes(ray, cluster)
            for letter in letters:
                nodes.add(letter)
            ray.init(address=cluster.address, logging_level=logging.ERROR, log_to_driver=False)
            yield nodes
        finally:
            ray.shutdown()
            cluster.shutdown()
