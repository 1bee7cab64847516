"""What is known of a field without looking at its rows."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transferqueue.errors import SchemaMismatchError

if TYPE_CHECKING:
    import torch

_DTYPE_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")
_MAX_DIM = 1 << 62


@dataclass(frozen=True, slots=True)
class FieldSchema:
    """One field's type: immutable, hashable, made of plain strings and ints.

    Attributes:
        dtype: name of the torch dtype (``"bfloat16"``), `None` for non-tensor columns.
        shape: shape of one row, ``()`` for a 1-D column; -1 marks a dimension whose size differs from row to row;
            `None` where rows have no shape (non-tensor) or differ in rank.
        is_nested: rows differ in shape (jagged, strided nested, or a stack of different shapes).
        is_non_tensor: rows are Python objects.
    """

    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    is_nested: bool = False
    is_non_tensor: bool = False

    @classmethod
    def of(cls, value: Mapping[str, Any] | FieldSchema) -> FieldSchema:
        """From a mapping with `dtype` (torch dtype or name), `shape`, `is_nested`, `is_non_tensor`, each optional.

        Symbolic sizes (torch's nested ints) become -1, so that a schema is always plain ints.
        """
        if isinstance(value, FieldSchema):
            return value
        if not isinstance(value, Mapping):
            raise TypeError(f"the schema of a field must be a mapping, got {type(value).__name__}")
        shape = value.get("shape")
        return cls(
            dtype=dtype_name(value.get("dtype")),
            shape=None if shape is None else plain_shape(shape),
            is_nested=bool(value.get("is_nested", False)),
            is_non_tensor=bool(value.get("is_non_tensor", False)),
        )

    @property
    def torch_dtype(self) -> torch.dtype | None:
        """The dtype as torch's object; imports torch."""
        return None if self.dtype is None else torch_dtype(self.dtype)

    def to_plain(self) -> dict[str, Any]:
        """A dict of strings, ints and bools, fit for JSON and msgpack; `of` reads it back."""
        return {
            "dtype": self.dtype,
            "shape": None if self.shape is None else list(self.shape),
            "is_nested": self.is_nested,
            "is_non_tensor": self.is_non_tensor,
        }

    def merged(self, other: FieldSchema) -> FieldSchema:
        """The schema of rows of both: nested as soon as one is or their shapes differ. The dtypes must be equal."""
        if self == other:
            return self
        shape = self.shape
        if shape != other.shape:
            if shape is None or other.shape is None or len(shape) != len(other.shape):
                shape = None
            else:
                shape = tuple(a if a == b else -1 for a, b in zip(shape, other.shape, strict=True))
        tensors = not (self.is_non_tensor or other.is_non_tensor)
        return FieldSchema(
            dtype=self.dtype,
            shape=shape,
            is_nested=self.is_nested or other.is_nested or (tensors and self.shape != other.shape),
            is_non_tensor=self.is_non_tensor or other.is_non_tensor,
        )


def plain_shape(shape: Iterable[Any]) -> tuple[int, ...]:
    """`shape` as plain ints, -1 for symbolic and unknown sizes."""
    return tuple(_plain_size(size) for size in shape)


def _plain_size(size: Any) -> int:
    if type(size) is not int:
        if hasattr(size, "node"):  # torch.SymInt: a jagged tensor's ragged size is one, and int() of it raises
            return -1
        return _plain_size(int(operator.index(size)))
    if size > _MAX_DIM:
        raise SchemaMismatchError(f"a dimension of {size} is larger than any tensor", found=size)
    return max(size, -1)


def dtype_name(dtype: Any) -> str | None:
    """``torch.bfloat16``, ``"torch.bfloat16"``, ``"bfloat16"`` or a numpy dtype -> ``"bfloat16"``."""
    if dtype is None:
        return None
    name = str(dtype).removeprefix("torch.")
    if not _DTYPE_NAME.fullmatch(name):
        raise SchemaMismatchError(f"{dtype!r} is not a torch dtype or the name of one", found=dtype)
    return name


def torch_dtype(name: str) -> torch.dtype:
    """The torch dtype of that name; `SchemaMismatchError` where this torch does not have it."""
    import torch

    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise SchemaMismatchError(f"torch {torch.__version__} has no dtype {name!r}", found=name)
    return found
