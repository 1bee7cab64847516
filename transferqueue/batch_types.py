"""Batch types beside TensorDict, known by what they can do: trainers have one of their own.

Such a type has ``from_tensordict(batch)``, a class method, and ``to_tensordict()``; values of the whole batch are
`NonTensorData` entries of that TensorDict. `transferqueue.workers.DataProto` is one.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from tensordict import is_tensor_collection


class ConvertibleBatch(Protocol):
    """What a batch type offers."""

    def to_tensordict(self) -> Any: ...

    @classmethod
    def from_tensordict(cls, tensor_dict: Any, /) -> Any: ...


BatchType = TypeVar("BatchType", bound=ConvertibleBatch)


def is_batch_type(cls: object) -> bool:
    """Whether a class converts from and to TensorDicts without being one."""
    return (
        isinstance(cls, type)
        and callable(getattr(cls, "from_tensordict", None))
        and callable(getattr(cls, "to_tensordict", None))
        and not is_tensor_collection(cls)
    )


def as_tensordict(batch: Any) -> Any:
    """The TensorDict of a batch of such a type; anything else as it is."""
    return batch.to_tensordict() if is_batch_type(type(batch)) else batch
