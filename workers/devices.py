"""Which accelerators a process sees, and which of them is a rank's own.

Frameworks read ``CUDA_VISIBLE_DEVICES`` (PyTorch on AMD's devices too) or ``ASCEND_RT_VISIBLE_DEVICES``. Ray sets the
variable of the machine's kind for each actor, so that a rank sees its own device as number 0; told not to
(``RAY_EXPERIMENTAL_NOSET_*``), it leaves all devices visible and says on request which ones belong to the actor.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from transferqueue.workers.errors import DeviceVisibilityError

CUDA, HIP, ROCR = "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"
ASCEND = "ASCEND_RT_VISIBLE_DEVICES"
NOSET_PREFIX = "RAY_EXPERIMENTAL_NOSET_"

# Ray's resource, the variable that says which devices a process sees, and those that tell Ray to leave it alone.
_KINDS = (
    ("NPU", ASCEND, ("ASCEND_RT_VISIBLE_DEVICES",)),
    ("GPU", CUDA, ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")),
)


@dataclass(frozen=True)
class OwnDevice:
    """A rank's device: its number among those that the process sees, and whether it sees only its own."""

    index: int
    alone: bool


def visible_devices_variable(environment: Mapping[str, str]) -> str:
    """The variable that restricts the devices here: Ascend's where it is set or its plugin is loaded, else CUDA's."""
    torch = sys.modules.get("torch")
    ascend = environment.get(ASCEND) or (torch is not None and hasattr(torch, "npu"))
    return ASCEND if ascend and not environment.get(CUDA) else CUDA


def unify_visible_devices(environment: MutableMapping[str, str]) -> None:
    """Moves AMD's settings to ``CUDA_VISIBLE_DEVICES``, the one that PyTorch and Ray agree on. Idempotent.

    ``HIP_VISIBLE_DEVICES`` means the same as ``CUDA_VISIBLE_DEVICES``; both may be set when they are equal.
    ``ROCR_VISIBLE_DEVICES`` does not: it filters first and the others count what it left, so beside one of them the
    numbers are ambiguous. An empty value counts as not set. Raises `DeviceVisibilityError` with both values where
    settings conflict; `environment` is then unchanged.
    """
    cuda, hip, rocr = (environment.get(name, "") for name in (CUDA, HIP, ROCR))
    if hip and cuda and _listed(hip) != _listed(cuda):
        raise DeviceVisibilityError(
            f"{HIP}={hip!r} and {CUDA}={cuda!r} name different devices: set one of them, or both to the same",
            variables={HIP: hip, CUDA: cuda},
        )
    if rocr and (hip or cuda):
        other, value = (HIP, hip) if hip else (CUDA, cuda)
        raise DeviceVisibilityError(
            f"{ROCR}={rocr!r} and {other}={value!r} are both set, and the second counts within the first: set one of "
            "them",
            variables={ROCR: rocr, other: value},
        )
    if hip:
        environment[CUDA] = environment.pop(HIP)
    if rocr:
        environment[CUDA] = environment.pop(ROCR)


def noset_variables(environment: Mapping[str, str]) -> list[str]:
    """The variables that tell Ray to leave the visible devices alone."""
    return [
        name
        for name, value in environment.items()
        if name.startswith(NOSET_PREFIX) and value.lower() not in ("", "0", "false")
    ]


def own_device(environment: Mapping[str, str], assigned: Mapping[str, Sequence[Any]]) -> OwnDevice | None:
    """The first device that Ray assigned to this process; None when it assigned none.

    Args:
        environment: after `unify_visible_devices`.
        assigned: Ray's accelerator ids by resource, as ``get_accelerator_ids()`` gives them.

    Raises `DeviceVisibilityError` when what Ray assigned is not visible here.
    """
    told = {name.removeprefix(NOSET_PREFIX) for name in noset_variables(environment)}
    for resource, variable, unset in _KINDS:
        ids = [str(device) for device in assigned.get(resource, ())]
        if not ids:
            continue
        if told.isdisjoint(unset):
            return OwnDevice(0, alone=True)
        visible = _listed(environment.get(variable, ""))
        numbers = [visible.index(device) for device in ids if device in visible]
        if not visible and all(device.isdecimal() for device in ids):
            numbers = [int(device) for device in ids]
        if numbers:
            return OwnDevice(min(numbers), alone=False)
        raise DeviceVisibilityError(
            f"Ray assigned {resource} {','.join(ids)} to this process, which {variable}="
            f"{environment.get(variable, 'not set')!r} does not show. {NOSET_PREFIX}* leaves that variable to the "
            "program: set it to include the device, or unset it",
            variables={variable: environment.get(variable, "")},
        )
    return None


def set_device(index: int) -> bool:
    """Makes device `index` the current one of the accelerator that torch sees; False when it sees none."""
    import torch

    for name in ("cuda", "npu"):
        module = getattr(torch, name, None)
        if module is not None and module.is_available():
            module.set_device(index)
            return True
    return False


def _listed(text: str) -> list[str]:
    return [device.strip() for device in text.split(",") if device.strip()]
