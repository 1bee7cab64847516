"""Jagged tensors put together from parts that are known to fit.

torch's constructor looks up and checks what a get knows already, in many places: 17 us, and 150 us when its code and
data are not in the processor's caches, which is the case right after a step or a large copy. The same object made
directly costs 7 us and 65 us. What torch keeps in such an object may change with any version of it, so the first jagged
tensor of a process is made both ways and compared; unless they agree in everything, torch's constructor is used ever
after.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch

Assemble = Callable[[torch.Tensor, torch.Tensor, int, int, int], Any]


@lru_cache(maxsize=1)
def jagged_assembler() -> Assemble | None:
    """``assemble(values, offsets, ragged_idx, shortest, longest)``; None where this torch has other jagged tensors."""
    try:
        assemble = _assembler()
        return assemble if _agrees(assemble) else None
    except Exception:  # whatever a torch with another inside raises; its constructor is there for that
        return None


def _assembler() -> Assemble:
    from torch.nested._internal import nested_tensor as inside
    from torch.nested._internal.nested_int import NestedIntNode

    kind = inside.NestedTensor
    make = torch.Tensor._make_wrapper_subclass
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.NestedTensor).add(torch._C.DispatchKey.AutogradNestedTensor)
    size_of_offsets: Any = inside._tensor_symint_registry.setdefault
    as_int: Any = torch.SymInt
    device = torch.device("cpu")
    marks = _length_marks(inside)

    def length(value: int) -> torch.Tensor:
        tensor = torch.empty((value, 0))  # how torch keeps a length: in a shape
        vars(tensor).update(marks)  # sets and dicts shared by all: torch only ever puts the same into them again
        return tensor

    def assemble(values: torch.Tensor, offsets: torch.Tensor, ragged_idx: int, shortest: int, longest: int) -> Any:
        number = inside._tensor_id_counter
        inside._tensor_id_counter = number + 1
        size_of_rows = size_of_offsets(offsets, as_int(NestedIntNode(number, 1)))
        ragged_dim = ragged_idx - 1
        shape, strides = values.shape, values.stride()
        size = (offsets.shape[0] - 1, *shape[:ragged_dim], size_of_rows, *shape[ragged_idx:])
        stride = strides[ragged_dim]
        all_strides = (size_of_rows if stride == 1 else size_of_rows * stride, *strides)
        jagged = make(
            kind,
            size,
            all_strides,
            0,
            torch.contiguous_format,
            values.dtype,
            torch.jagged,
            device,
            False,
            False,
            "sizes",
            False,
            True,
            keys,
            storage_size=values.untyped_storage().size(),
        )
        vars(jagged).update(
            _ragged_idx=ragged_idx,
            _size=size,
            _strides=all_strides,
            _values=values,
            _offsets=offsets,
            _lengths=None,
            _metadata_cache={"min_seqlen": length(shortest), "max_seqlen": length(longest)},
            _dynamo_propagated_dynamic_indices={ragged_idx},
        )
        vars(values)["_dynamo_propagated_dynamic_indices"] = {ragged_dim}
        return jagged

    return assemble


def _length_marks(inside: Any) -> dict[str, Any]:
    """What torch.compile is told of a length: that it differs from batch to batch."""
    made = _constructed(inside, torch.zeros(3), torch.tensor([0, 1, 3]), 1, 1, 2)
    return dict(vars(made._metadata_cache["max_seqlen"]))


def _constructed(inside: Any, values: torch.Tensor, offsets: torch.Tensor, ragged_idx: int, low: int, high: int) -> Any:
    lengths = {"min_seqlen": inside._store_val_in_tensor(low), "max_seqlen": inside._store_val_in_tensor(high)}
    return inside.NestedTensor(values, offsets, _ragged_idx=ragged_idx, _metadata_cache=lengths)


def _agrees(assemble: Assemble) -> bool:
    from torch.nested._internal import nested_tensor as inside

    for values, ragged_idx in ((torch.arange(6.0).view(3, 2), 1), (torch.arange(6).view(3, 2).t(), 2)):
        offsets = torch.tensor([0, 1, 3])
        ours = assemble(values, offsets, ragged_idx, 1, 2)
        our_marks = dict(vars(values))
        fresh = values.detach()
        theirs = _constructed(inside, fresh, offsets, ragged_idx, 1, 2)
        if our_marks != vars(fresh) or _facts(ours) != _facts(theirs):
            return False
        for name in ("_values", "_offsets"):
            if not torch.equal(getattr(ours, name), getattr(theirs, name)):
                return False
    return True


def _facts(jagged: Any) -> dict[str, Any]:
    """Everything that two jagged tensors of one content have in common."""
    state = dict(vars(jagged))
    lengths = {
        name: (tensor.shape, tensor.dtype, vars(tensor)) for name, tensor in state.pop("_metadata_cache").items()
    }
    parts = {name: (state.pop(name).dtype, name) for name in ("_values", "_offsets")}
    return {
        **state,
        "type": type(jagged),
        "keys": str(torch._C._dispatch_keys(jagged)),
        "whole": (jagged.shape, jagged.stride(), jagged.dtype, jagged.layout, jagged.device, jagged.requires_grad),
        "storage": jagged.untyped_storage().size(),
        "lengths": lengths,
        "parts": parts,
    }
