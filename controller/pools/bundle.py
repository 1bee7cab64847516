"""What is reserved for one rank, and which part of it one worker group takes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from transferqueue.workers.ray_runtime import require_ray

# The amount that Ray asks of a node for the actor option `accelerator_type`.
_ACCELERATOR_TYPE_AMOUNT = 0.001

# Torch's device types and what Ray calls the devices; Ray counts those of CUDA, ROCm and Intel under one name.
_RESOURCE_OF_DEVICE = {
    "cuda": "GPU",
    "gpu": "GPU",
    "hip": "GPU",
    "xpu": "GPU",
    "npu": "NPU",
    "hpu": "HPU",
    "tpu": "TPU",
}


def device_resource(device_name: str) -> str:
    """Ray's resource for a torch device type: ``"cuda"`` is ``"GPU"``, ``"npu"`` is ``"NPU"``."""
    name = device_name.partition(":")[0].lower()
    if name not in _RESOURCE_OF_DEVICE:
        raise ValueError(f"no accelerator is called {device_name!r}; known are {', '.join(_RESOURCE_OF_DEVICE)}")
    return _RESOURCE_OF_DEVICE[name]


def device_resource_of_cluster() -> str:
    """The accelerator that the cluster has: ``"GPU"``, or another one where there are no GPUs."""
    ray = require_ray("RayResourcePool")
    present = ray.cluster_resources() if ray.is_initialized() else {}
    kinds = dict.fromkeys(_RESOURCE_OF_DEVICE.values())
    return next((name for name in kinds if present.get(name)), "GPU")


@dataclass(frozen=True)
class Bundle:
    """The room of one rank, shared by up to `max_colocate_count` worker groups.

    `cpus` are those of all groups together; `device` is Ray's name of the accelerator (None: CPUs only), of which the
    bundle has one; `further` are other resources, for all groups together.
    """

    max_colocate_count: int
    cpus: float
    device: str | None = None
    further: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of_pool(
        cls,
        max_colocate_count: int,
        device: str | None,
        accelerator_type: str | None,
        further: Mapping[str, float],
    ) -> Bundle:
        """A CPU for each group, and an accelerator that they share."""
        more = {name: amount * max_colocate_count for name, amount in further.items()}
        if accelerator_type is not None:
            more.setdefault(accelerator_type, _ACCELERATOR_TYPE_AMOUNT * max_colocate_count)
        return cls(max_colocate_count, float(max_colocate_count), device, more)

    @classmethod
    def of_resources(cls, resources: Mapping[str, float], max_colocate_count: int | None = None) -> Bundle:
        """The bundle of a placement group that exists. Without `max_colocate_count`: one group per CPU."""
        rest = {name: amount for name, amount in resources.items() if name != "CPU" and not name.startswith("bundle")}
        cpus = float(resources.get("CPU", 0.0))
        device = next((name for name in dict.fromkeys(_RESOURCE_OF_DEVICE.values()) if rest.pop(name, 0.0)), None)
        return cls(max_colocate_count or max(1, int(cpus)), cpus, device, rest)

    @property
    def share(self) -> float:
        """The part of an accelerator that one group takes (Ray counts in steps of 0.0001)."""
        return _rounded_down(1.0 / self.max_colocate_count)

    def resources(self) -> dict[str, float]:
        """As Ray's placement groups take it."""
        named = {"CPU": self.cpus, **({self.device: 1.0} if self.device else {}), **self.further}
        return {name: amount for name, amount in named.items() if amount}

    def without_device(self) -> Bundle:
        """The same for groups that leave the accelerator alone."""
        return Bundle(self.max_colocate_count, self.cpus, None, self.further)

    def request(self, with_device: bool = True) -> dict[str, Any]:
        """What one group's actor asks for in the bundle, as ``.options(...)`` takes it."""
        request: dict[str, Any] = {"num_cpus": _rounded_down(self.cpus / self.max_colocate_count)}
        if not with_device or self.device is None:
            return request
        if self.device == "GPU":
            request["num_gpus"] = self.share
        else:
            request["resources"] = {self.device: self.share}
        return request


def _rounded_down(amount: float) -> float:
    return math.floor(amount * 10_000 + 1e-6) / 10_000
