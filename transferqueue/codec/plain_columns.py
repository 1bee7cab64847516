"""Columns that the native core reads whole: what it must know of a schema, and the columns from what it returns.

Dense rows, rows of differing lengths and rows of plain values, viewed or copied: one native call finds, checks and maps
or copies all of them. Everything else (rows with headers, strided nested tensors, objects, mixtures) is read by
`FieldReader`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from transferqueue import _native
from transferqueue.codec import schema as forms
from transferqueue.codec.dlpack import from_dlpack
from transferqueue.codec.dtypes import dlpack_type, from_name
from transferqueue.codec.jagged_assembly import jagged_assembler
from transferqueue.codec.lazy_stack import lazy_stack
from transferqueue.codec.nested_tensors import jagged_over
from transferqueue.codec.schema import read_schema
from transferqueue.codec.values import decode_values


class PlainField(NamedTuple):
    """What a column needs besides its bytes.

    Attributes:
        dtype: of the elements; uint8 for Python values.
        as_bytes: DLPack has no name for the dtype: the tensor arrives as uint8.
        step_shape: of one step of the ragged dimension.
        ragged_dim: within a row.
        path, inner_batch: see `BlockSchema`.
    """

    dtype: torch.dtype
    as_bytes: bool
    step_shape: tuple[int, ...]
    ragged_dim: int
    path: tuple[str, ...]
    inner_batch: tuple[tuple[int, ...], ...]


def describe(raw: bytes) -> tuple[int, int, int, tuple[int, ...], bool, bool, PlainField] | None:
    """A schema for `_native.ColumnTypes`; None where `FieldReader` reads the field."""
    schema = read_schema(raw)  # of a stub, too: `FieldReader` says that it holds no payload
    if schema.form == forms.VALUES:
        field = PlainField(torch.uint8, False, (), 0, schema.path, schema.inner_batch)
        return _native.COLUMN_BYTES, 1, 8, (), True, False, field
    if schema.form not in (forms.DENSE, forms.JAGGED) or schema.headers:
        return None
    if schema.shape is None or schema.dtype is None:
        return None
    dtype = from_name(schema.dtype)
    element = dlpack_type(dtype)
    if element is None:
        return None
    ragged_dim = schema.ragged_dim
    rest = tuple(size for dim, size in enumerate(schema.shape) if dim != ragged_dim)
    field = PlainField(dtype, element.as_bytes, rest, ragged_dim, schema.path, schema.inner_batch)
    if schema.form == forms.DENSE:
        ready = not element.as_bytes and not schema.path
        return _native.COLUMN_DENSE, element.code, element.bits, schema.shape, True, ready, field
    return _native.COLUMN_RAGGED, element.code, element.bits, rest, ragged_dim == 0, False, field


_types = _native.ColumnTypes(describe, from_dlpack)


class PlainColumns:
    """The columns of `names`, as far as the core reads them whole.

    Args:
        resolved: rows x fields.
        names: the fields, in this order.
        mode: "cow", "shared" or "copy".
        copy_below: stretches of fewer bytes are copied.
        known_offsets: of jagged columns of the same rows that were read before; equal ones are used again.

    Attributes:
        columns: by name, in order; None for what is in `rest`.
        rest: (name, parts of the column), parts None where it is to be read otherwise.
        offsets: of the jagged columns, one tensor for all with equal ones.
        viewed_nbytes, copied_nbytes: of all columns found.
    """

    __slots__ = ("_n_rows", "columns", "copied_nbytes", "offsets", "rest", "viewed_nbytes")

    def __init__(
        self,
        resolved: _native.Resolved,
        names: Sequence[str],
        mode: str,
        copy_below: int,
        known_offsets: Sequence[torch.Tensor] = (),
    ) -> None:
        self._n_rows = resolved.n_rows
        self.columns, self.rest, offsets, self.viewed_nbytes, self.copied_nbytes = resolved.columns(
            _types, names, views=mode != "copy", shared=mode == "shared", copy_below=copy_below
        )
        self.offsets: list[torch.Tensor] = [from_dlpack(capsule) for capsule in offsets]
        if known_offsets:
            self._share(known_offsets)

    def _share(self, known_offsets: Sequence[torch.Tensor]) -> None:
        # The native numbers of the offsets stay: those known before are put behind.
        for number, own in enumerate(self.offsets):
            self.offsets[number] = next((known for known in known_offsets if torch.equal(known, own)), own)
        self.offsets.extend(known for known in known_offsets if all(known is not own for own in self.offsets))

    def column(self, name: str, parts: tuple[Any, ...]) -> Any:
        """The column of one entry of `rest` that has parts: a tensor, a jagged tensor, or a NonTensorStack."""
        kind = parts[0]
        field: PlainField = parts[1]
        capsule = parts[2]
        if kind == _DENSE:
            tensor = from_dlpack(capsule)
            return tensor.view(field.dtype) if field.as_bytes else tensor
        n_rows = self._n_rows
        if kind == _BYTES:
            data = b"" if capsule is None else from_dlpack(capsule).numpy()
            return lazy_stack(None, n_rows, lambda: decode_values(name, data, n_rows))
        if capsule is None:
            values = torch.empty((0, *field.step_shape), dtype=field.dtype)
        else:
            values = from_dlpack(capsule)
            if field.as_bytes:
                values = values.view(field.dtype)
        return jagged_over(
            values, self.offsets[parts[3]], ragged_dim=field.ragged_dim, shortest=parts[4], longest=parts[5]
        )


_DENSE = _native.COLUMN_DENSE
_BYTES = _native.COLUMN_BYTES
jagged_assembler()  # 4 ms of imports and checks, here rather than in the first get of a process
