"""A TensorDict as plain values and arrays of bytes, which is how a `DataProto` travels.

An array keeps only its own bytes: of a slice, torch would pickle the whole storage. A serializer that takes buffers out
of band (pickle protocol 5, Ray) copies them once; what is read back is private memory, so that it may be written.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase

_DENSE, _JAGGED, _BATCH, _OTHER = "dense", "jagged", "batch", "other"


def pack_batch(batch: TensorDictBase | None) -> Any:
    """A picklable form of a batch. Autograd history is left behind."""
    if batch is None:
        return None
    entries = {name: _pack(batch.get(name)) for name in batch.keys()}
    return tuple(batch.batch_size), None if batch.device is None else str(batch.device), entries


def unpack_batch(packed: Any) -> TensorDict | None:
    """The batch, in memory of its own. Tensors of a device that is not here are on the CPU."""
    if packed is None:
        return None
    batch_size, device, entries = packed
    return TensorDict(
        {name: _unpack(*entry) for name, entry in entries.items()},
        batch_size=batch_size,
        device=_here(device),
    )


def pack_tensor(tensor: torch.Tensor) -> tuple[str, tuple[int, ...], str, Any]:
    """(dtype, shape, device, bytes) of a dense tensor; the bytes are shared where it is contiguous on the CPU."""
    plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    data = plain.reshape(-1).view(torch.uint8).numpy() if plain.numel() else np.empty(0, np.uint8)
    return str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), str(tensor.device), data


def unpack_tensor(dtype: str, shape: tuple[int, ...], device: str, data: Any) -> torch.Tensor:
    """The tensor, a copy."""
    made = torch.empty(shape, dtype=getattr(torch, dtype))
    if made.numel():
        made.reshape(-1).view(torch.uint8).numpy()[:] = data
    return made.to(_here(device) or "cpu")


def _pack(entry: Any) -> tuple[str, Any]:
    if isinstance(entry, torch.Tensor) and not entry.is_nested and entry.layout is torch.strided:
        return _DENSE, pack_tensor(entry)
    if _is_simple_jagged(entry):
        return _JAGGED, _jagged_parts(entry)
    if type(entry) is TensorDict:
        return _BATCH, pack_batch(entry)
    return _OTHER, entry.detach() if isinstance(entry, torch.Tensor) else entry


def _unpack(kind: str, packed: Any) -> Any:
    if kind == _DENSE:
        return unpack_tensor(*packed)
    if kind == _JAGGED:
        values, offsets, ragged_dim = packed
        return torch.nested.nested_tensor_from_jagged(
            unpack_tensor(*values), offsets=unpack_tensor(*offsets), jagged_dim=ragged_dim
        )
    return unpack_batch(packed) if kind == _BATCH else packed


def _jagged_parts(entry: Any) -> tuple[Any, Any, int]:
    return pack_tensor(entry.values()), pack_tensor(entry.offsets()), int(getattr(entry, "_ragged_idx", 1))


def _is_simple_jagged(entry: Any) -> bool:
    return bool(
        isinstance(entry, torch.Tensor)
        and entry.is_nested
        and entry.layout is torch.jagged
        and getattr(entry, "_lengths", None) is None
    )


def _here(device: str | None) -> str | None:
    """The device, or the CPU where this process does not have it."""
    if device is None or device == "cpu":
        return device
    module = getattr(torch, torch.device(device).type, None)
    available = module is not None and getattr(module, "is_available", lambda: False)()
    return device if available else "cpu"
