"""The session of a Ray cluster: which one the processes of a node share.

Its name stands in Ray's own key-value store, under the node's id: no actor has to be started, and whoever initialised
Ray can look it up. The only module of the data plane that imports Ray, and only where Ray is in use already.
"""

from __future__ import annotations

import sys
from typing import Any

from transferqueue.logs import get_logger

_log = get_logger("cluster")
_NAMESPACE = "transferqueue"


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


def _key() -> bytes:
    import ray

    return f"session:{ray.get_runtime_context().get_node_id()}".encode()


def find_session() -> str | None:
    """The name that is registered for this node; None without Ray or without a session."""
    if not ray_is_running():
        return None
    value = _store()._internal_kv_get(_key(), namespace=_NAMESPACE)
    return value.decode() if value else None


def register_session(name: str) -> str:
    """Registers a session for this node unless there is one; returns the one that stands."""
    if not ray_is_running():
        return name
    existed = _store()._internal_kv_put(_key(), name.encode(), overwrite=False, namespace=_NAMESPACE)
    if not existed:
        return name
    return find_session() or name


def forget_session(name: str) -> None:
    """Takes the registration back, if it is still this one."""
    if ray_is_running() and find_session() == name:
        _store()._internal_kv_del(_key(), namespace=_NAMESPACE)
