"""Which library carries collectives here: nccl, hccl or gloo, told without importing what is absent."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _DistributedBackendOptions

from transferqueue.workers.errors import BackendNotAvailableError

_DEVICE_BACKENDS = (("cuda", "nccl"), ("npu", "hccl"), ("xpu", "xccl"))


def accelerator() -> str | None:
    """The kind of accelerator that torch sees: ``"cuda"`` (AMD's too), ``"npu"``, ``"xpu"``, or None.

    A plugin such as Ascend's counts once the program has imported it.
    """
    for device, _ in _DEVICE_BACKENDS:
        module = getattr(torch, device, None)
        if module is not None and module.is_available():
            return device
    return None


def default_backend() -> str:
    """gloo for CPU tensors and, where there is an accelerator, its library for that: ``"cpu:gloo,cuda:nccl"``."""
    device = accelerator()
    if device is None:
        return "gloo"
    backend = dict(_DEVICE_BACKENDS)[device]
    return f"cpu:gloo,{device}:{backend if _is_built(backend) else 'gloo'}"


def device_backend(device: torch.device) -> str:
    """The backend for tensors on `device`. `BackendNotAvailableError` where torch has none."""
    backend = "gloo" if device.type == "cpu" else dict(_DEVICE_BACKENDS).get(device.type)
    if backend is None:
        raise BackendNotAvailableError(
            f"no backend is known for tensors on {device}; known: cpu, {', '.join(dict(_DEVICE_BACKENDS))}",
            device=str(device),
        )
    check_backend(f"{device.type}:{backend}")
    return backend


def check_backend(backend: str) -> str:
    """The same text. `BackendNotAvailableError` where a part of it cannot work here, which torch would say late.

    Args:
        backend: one for all devices (``"gloo"``) or one per kind of device (``"cpu:gloo,cuda:nccl"``).
    """
    for part in backend.split(","):
        device, colon, name = part.strip().rpartition(":")
        if not name or (colon and not device):
            raise ValueError(f"a backend is 'gloo' or 'cpu:gloo,cuda:nccl', got {backend!r}")
        needed = {library: kind for kind, library in _DEVICE_BACKENDS}.get(name.lower())
        if needed is not None and accelerator() != needed:
            raise BackendNotAvailableError(
                f"backend {name!r} of {backend!r} needs a device of kind {needed}; torch {torch.__version__} sees "
                f"{accelerator() or 'none'} here. Use {default_backend()!r}",
                backend=name,
                device=needed,
            )
        if not _is_built(name):
            raise BackendNotAvailableError(
                f"torch {torch.__version__} was built without backend {name!r} (of {backend!r}), or its plugin was not "
                f"imported. Use {default_backend()!r}",
                backend=name,
                device=device or None,
            )
    return backend


def new_backend(name: str, store: Any, rank: int, size: int, timeout: Any) -> Any:
    """A group of its own, apart from torch's default one: torch's backend object for `name`."""
    if name == "gloo":
        return dist.ProcessGroupGloo(store, rank, size, timeout=timeout)
    if name == "nccl":
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = timeout
        return dist.ProcessGroupNCCL(store, rank, size, options)
    # What plugins register (Ascend's hccl, for instance), called as torch's own init_process_group calls it.
    plugin = dist.Backend._plugins[name.upper()]
    if not plugin.extended_api:
        return plugin.creator_fn(store, rank, size, timeout)
    extended = _DistributedBackendOptions()
    extended.store, extended.group_rank, extended.group_size = store, rank, size
    extended.timeout, extended.group_id, extended.global_ranks_in_group = timeout, f"stateless_{name}", [*range(size)]
    return plugin.creator_fn(extended, None)


def _is_built(name: str) -> bool:
    asked = getattr(dist, f"is_{name.lower()}_available", None)
    return bool(asked()) if asked is not None else name.upper() in getattr(dist.Backend, "_plugins", {})
