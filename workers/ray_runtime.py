"""What a rank asks of Ray: the only module of this layer that imports it, and only when asked."""

from __future__ import annotations

import importlib
import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from transferqueue.errors import TransferTimeoutError


def require_ray(what: str) -> Any:
    """The `ray` module. `ImportError` saying what needs it and how to install it."""
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise ImportError(f"{what} needs Ray: pip install 'transferqueue-shm[ray]'") from error


def inside_ray() -> bool:
    """Whether this process has joined a Ray cluster, without importing Ray."""
    ray = sys.modules.get("ray")
    return bool(ray is not None and getattr(ray, "is_initialized", lambda: False)())


def is_reference(value: object) -> bool:
    """Whether a value is a Ray reference, without importing Ray."""
    ray = sys.modules.get("ray")
    return ray is not None and isinstance(value, ray.ObjectRef)


def fetch(refs: Sequence[Any], timeout_s: float | None = None) -> list[Any]:
    """The values behind Ray references, in order. Raises what a task raised; after `timeout_s` seconds
    `TransferTimeoutError`."""
    ray = require_ray("fetching the outputs of a worker group")
    try:
        return list(ray.get(list(refs), timeout=timeout_s))
    except ray.exceptions.GetTimeoutError as error:
        raise TransferTimeoutError(
            f"not all of {len(refs)} outputs were there after {timeout_s:g} s", timeout_s=timeout_s
        ) from error


def are_ready(refs: Sequence[Any]) -> bool:
    """Whether `fetch` would return, or raise, at once."""
    ready, _ = require_ray("a worker group").wait(list(refs), num_returns=len(refs), timeout=0, fetch_local=False)
    return len(ready) == len(refs)


@dataclass(frozen=True)
class NodeFacts:
    """Where this process runs. Without Ray `node_id` is the host name."""

    node_id: str
    node_ip: str
    pid: int


def node_facts() -> NodeFacts:
    """Node id, address and pid of this process."""
    if inside_ray():
        ray = require_ray("node_facts")
        return NodeFacts(ray.get_runtime_context().get_node_id(), node_ip(), os.getpid())
    return NodeFacts(socket.gethostname(), node_ip(), os.getpid())


def own_accelerators() -> tuple[str, ...]:
    """The numbers of the accelerators that Ray gave to this process; none without Ray."""
    return tuple(number for numbers in accelerator_ids().values() for number in numbers)


def node_ip() -> str:
    """The address at which other nodes reach this one; without Ray the loopback address."""
    if inside_ray():
        return str(require_ray("node_ip").util.get_node_ip_address()).strip("[]")
    return "127.0.0.1"


def accelerator_ids() -> dict[str, list[str]]:
    """The accelerators that Ray assigned to this process, by resource (``{"GPU": ["3"]}``); without Ray none."""
    if not inside_ray():
        return {}
    ids = require_ray("accelerator_ids").get_runtime_context().get_accelerator_ids()
    return {resource: [str(device) for device in devices] for resource, devices in ids.items() if devices}
