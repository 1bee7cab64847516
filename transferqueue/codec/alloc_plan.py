"""Fields that a producer computes straight into the store."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from transferqueue import _native
from transferqueue.codec import schema as forms
from transferqueue.codec.block_plan import BlockPlan
from transferqueue.codec.dlpack import from_dlpack
from transferqueue.codec.dtypes import dlpack_type, is_storable, name_of
from transferqueue.codec.encoded_field import EncodedField
from transferqueue.codec.field_tree import nest, new_batch
from transferqueue.codec.jagged import Jagged
from transferqueue.codec.nested_tensors import jagged_over
from transferqueue.codec.schema import check_name
from transferqueue.errors import SchemaMismatchError, StorageFullError

Spec = tuple[tuple[int, ...], torch.dtype] | Jagged


class AllocPlan(BlockPlan):
    """The block of an allocation: made by `plan_alloc`.

    A plan of dense fields is used for many allocations, so it holds everything that they have in common: one native
    call then makes the tensors of all fields. Each object that is touched costs a miss of the caches in a process that
    has just written a large batch.

    Attributes:
        reusable: neither the plan nor the descriptions it was made of hold anything of one allocation: where they are
            the same objects again, so is the plan.
    """

    reusable = False

    def __init__(self, specs: dict[tuple[str, ...], Spec], n_rows: int) -> None:
        self._specs = specs
        self._fields = [_allocated(path, spec, n_rows) for path, spec in specs.items()]
        super().__init__(self._fields, n_rows)
        self._paths: dict[str, tuple[tuple[str, ...], tuple[tuple[int, ...], ...]]] = {
            field.name: (path, ()) for path, field in zip(specs, self._fields, strict=True) if len(path) > 1
        }
        self._ragged = any(field.offsets is not None for field in self._fields)
        # (name, its description, to be seen as this dtype): what is not ready when the native call returns.
        self._unready: list[tuple[str, Spec, torch.dtype | None]] = []
        columns = [self._column(spec, field) for spec, field in zip(specs.values(), self._fields, strict=True)]
        self._tensors = _native.TensorPlan(from_dlpack, columns)

    def _column(self, spec: Spec, field: EncodedField) -> tuple[str, int, int, tuple[int, ...], int]:
        shape, dtype = _values_of(spec, self.n_rows)
        element = dlpack_type(dtype)
        as_bytes = element is None or element.as_bytes
        if as_bytes or isinstance(spec, Jagged):
            self._unready.append((field.name, spec, dtype if as_bytes else None))
        if element is None:  # of several bytes, and DLPack has no name for it
            return field.name, 1, 8, (field.data_nbytes,), field.data_offset
        return field.name, element.code, element.bits, shape, field.data_offset

    def tensors(self, reservation: _native.Reservation) -> Any:
        """A TensorDict of writable tensors inside the extent; gives the extent its producer mapping.

        What they hold before they are written is undefined. Jagged fields have their lengths from the start.
        """
        return self._batch(reservation.producer_tensors(self._tensors))

    def private_tensors(self) -> Any:
        """The same TensorDict in memory of this process."""
        columns: dict[str, Any] = {}
        for spec, field in zip(self._specs.values(), self._fields, strict=True):
            shape, dtype = _values_of(spec, self.n_rows)
            columns[field.name] = torch.empty(field.data_nbytes, dtype=torch.uint8).view(dtype).view(shape)
        return self._batch(columns)

    def _batch(self, columns: dict[str, Any]) -> Any:
        for name, spec, dtype in self._unready:
            tensor = columns[name]
            if dtype is not None and tensor.dtype is not dtype:
                tensor = tensor.view(dtype).view(_values_of(spec, self.n_rows)[0])
            columns[name] = self._jagged(tensor, spec) if isinstance(spec, Jagged) else tensor
            del tensor  # nobody but the batch may hold one
        return nest(columns, self._paths, self.n_rows) if self._paths else new_batch(columns, self.n_rows)

    def _jagged(self, values: torch.Tensor, spec: Jagged) -> Any:
        offsets = np.zeros(self.n_rows + 1, dtype=np.int64)
        np.cumsum(spec.lengths, out=offsets[1:])
        return jagged_over(
            values,
            torch.from_numpy(offsets),
            ragged_dim=0,
            shortest=int(spec.lengths.min(initial=0 if not self.n_rows else spec.lengths[0])),
            longest=int(spec.lengths.max(initial=0)),
        )

    def finish(self, reservation: _native.Reservation) -> None:
        """Writes what the producer does not: the row offsets of jagged fields. Call it before publishing."""
        if self._ragged:
            reservation.copy_in([write for field in self._fields for write in field.placed_writes()])


def plan_alloc(fields: Mapping[Any, Any], n_rows: int) -> AllocPlan:
    """Plans an allocation of `n_rows` rows.

    Args:
        fields: name (or tuple of keys, for a nested TensorDict) -> ``(shape of one row, dtype)`` or `Jagged`.

    Raises:
        SchemaMismatchError: a ValueError that names the field: not such a description, lengths of another number of
            rows, rows of `Jagged` without bytes (a size of 0 in its row_shape), two fields of one name.
        StorageFullError: more bytes than any store can hold.
    """
    if all(_is_plain(spec) for spec in fields.values()):
        return _plan_of_dense(tuple(fields.items()), n_rows)
    return _planned(fields.items(), n_rows)


def _is_plain(spec: Any) -> bool:
    """A description that equals another one only if both mean the same (4 == 4.0 == np.int64(4))."""
    return (
        type(spec) is tuple
        and len(spec) == 2
        and type(spec[0]) is tuple
        and all(type(size) is int for size in spec[0])
        and type(spec[1]) is torch.dtype
    )


@lru_cache(maxsize=256)
def _plan_of_dense(fields: tuple[tuple[Any, Any], ...], n_rows: int) -> AllocPlan:
    # A loop allocates the same fields at every step, and a plan of dense fields holds nothing of one allocation.
    plan = _planned(fields, n_rows)
    plan.reusable = True
    return plan


def _planned(fields: Iterable[tuple[Any, Any]], n_rows: int) -> AllocPlan:
    specs: dict[tuple[str, ...], Spec] = {}
    names: set[str] = set()
    for key, spec in fields:
        path = tuple(check_name(part) for part in key) if isinstance(key, tuple) else (check_name(key),)
        name = "/".join(path)
        if not path or name in names:
            raise SchemaMismatchError(f"two fields are named {name!r}, or one has no name", fields=(name,))
        names.add(name)
        specs[path] = _checked(name, spec, n_rows)
    return AllocPlan(specs, n_rows)


def _checked(name: str, spec: Any, n_rows: int) -> Spec:
    if isinstance(spec, Jagged):
        if len(spec) != n_rows:
            raise SchemaMismatchError(
                f"field {name!r} has {len(spec)} lengths for {n_rows} rows",
                fields=(name,),
                expected=n_rows,
                found=len(spec),
            )
        if 0 in spec.row_shape:
            raise SchemaMismatchError(
                f"field {name!r}: rows of shape [length, {spec.row_shape}] have no bytes to compute; put them",
                fields=(name,),
            )
        return spec
    try:
        shape, dtype = spec
        sizes = tuple(int(operator.index(size)) for size in shape)
    except (TypeError, ValueError):
        sizes, dtype = (), None
    if not isinstance(dtype, torch.dtype) or not is_storable(dtype) or any(size < 0 for size in sizes):
        raise SchemaMismatchError(
            f"field {name!r} must be given as (shape of one row, dtype) or Jagged(lengths, dtype), not {spec!r}"[:300],
            fields=(name,),
        )
    return sizes, dtype


def _values_of(spec: Spec, n_rows: int) -> tuple[tuple[int, ...], torch.dtype]:
    """Shape and dtype of the tensor that holds a field's elements."""
    if isinstance(spec, Jagged):
        return (int(spec.lengths.sum()), *spec.row_shape), spec.dtype
    return (n_rows, *spec[0]), spec[1]


def _allocated(path: tuple[str, ...], spec: Spec, n_rows: int) -> EncodedField:
    name = "/".join(path)
    stored_path = path if len(path) > 1 else ()
    if isinstance(spec, Jagged):
        unit = math.prod(spec.row_shape) * spec.dtype.itemsize
        wanted = sum(spec.lengths.tolist()) * unit
        if wanted >= 2**63:  # the offsets below would wrap
            raise StorageFullError(f"field {name!r}: no store has room for {wanted} bytes", wanted_bytes=wanted)
        offsets = np.zeros(n_rows + 1, dtype=np.int64)
        np.cumsum(spec.lengths * unit, out=offsets[1:])
        schema = forms.schema_bytes(forms.JAGGED, name_of(spec.dtype), (-1, *spec.row_shape), path=stored_path)
        return EncodedField(name, schema, data_nbytes=int(offsets[-1]), offsets=offsets)
    shape, dtype = spec
    row_nbytes = math.prod(shape) * dtype.itemsize
    if max(shape, default=0) >= 2**63:
        raise StorageFullError(
            f"field {name!r}: no store has room for rows of shape {list(shape)}"[:300], wanted_bytes=row_nbytes * n_rows
        )
    schema = forms.schema_bytes(forms.DENSE, name_of(dtype), shape, path=stored_path)
    return EncodedField(name, schema, data_nbytes=row_nbytes * n_rows, row_nbytes=row_nbytes)
