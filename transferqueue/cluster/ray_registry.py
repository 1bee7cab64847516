"""Which session the processes of a Ray cluster share.

Its name stands in Ray's own key-value store: no actor has to be started, and whoever initialised Ray can look it up. A
session of one node stands under the node's id, one that spans nodes for all of them; both for each Ray namespace apart.
Jobs that did not name their namespace share one entry.
"""

from __future__ import annotations

import re
import sys
from typing import Any

_NAMESPACE = "transferqueue"
# What Ray calls the namespace of a job that named none.
_ANONYMOUS = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def ray_is_running() -> bool:
    """Whether this process has initialised Ray. Does not import it."""
    ray = sys.modules.get("ray")
    try:
        return ray is not None and bool(ray.is_initialized())
    except AttributeError:
        return False  # half imported: Ray itself is being imported further up the stack


def is_ray_worker() -> bool:
    """Whether Ray started this process to run tasks or an actor; False in a driver."""
    if not ray_is_running():
        return False
    import ray

    return bool(ray.get_runtime_context().worker.mode == ray.WORKER_MODE)


def _store() -> Any:
    from ray.experimental import internal_kv

    return internal_kv


def _namespace() -> str:
    """That of this process's job; empty when the job named none."""
    import ray

    namespace = str(ray.get_runtime_context().namespace)
    return "" if _ANONYMOUS.fullmatch(namespace) else namespace


def _node_key() -> bytes:
    import ray

    return f"session:{ray.get_runtime_context().get_node_id()}:{_namespace()}".encode()


def _cluster_key() -> bytes:
    return f"cluster-session:{_namespace()}".encode()


def read_value(key: str) -> str | None:
    """A value that `write_value` keeps as long as the Ray cluster lives."""
    return _read(key.encode())


def write_value(key: str, value: str) -> None:
    """Replaces what was there."""
    _store()._internal_kv_put(key.encode(), value.encode(), overwrite=True, namespace=_NAMESPACE)


def forget_value(key: str) -> None:
    """Quiet when there is none."""
    _store()._internal_kv_del(key.encode(), namespace=_NAMESPACE)


def _read(key: bytes) -> str | None:
    value = _store()._internal_kv_get(key, namespace=_NAMESPACE)
    return value.decode() if value else None


def _register(key: bytes, name: str) -> str:
    existed = _store()._internal_kv_put(key, name.encode(), overwrite=False, namespace=_NAMESPACE)
    return (_read(key) or name) if existed else name


def find_session() -> str | None:
    """The name that is registered for this node, else for all nodes; None without Ray or without a session."""
    if not ray_is_running():
        return None
    return _read(_node_key()) or _read(_cluster_key())


def register_session(name: str) -> str:
    """Registers a session for this node unless there is one; returns the one that stands."""
    return _register(_node_key(), name) if ray_is_running() else name


def register_cluster_session(name: str) -> str:
    """Registers a session for all nodes, for jobs of this Ray namespace, unless there is one; returns the one that
    stands."""
    return _register(_cluster_key(), name)


def forget_session(name: str) -> None:
    """Takes the registrations back, where they are still this one."""
    if not ray_is_running():
        return
    for key in (_node_key(), _cluster_key()):
        if _read(key) == name:
            _store()._internal_kv_del(key, namespace=_NAMESPACE)
