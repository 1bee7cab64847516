"""Rows of one field that differ in type from put to put, as one column.

The rule, in this order:
1. a row that is no tensor, a stack among the pieces, or rows that differ in dtype or rank: a stack (NonTensorStack of
   the rows as they are; nothing is converted);
2. all put as strided nested tensors: strided nested;
3. row shapes differ in at most one dimension: jagged, with that dimension ragged;
4. else: strided nested.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from transferqueue.codec import schema as forms
from transferqueue.codec.columns import FieldReader, strided_of
from transferqueue.codec.dtypes import from_name
from transferqueue.codec.lazy_stack import lazy_stack
from transferqueue.codec.schema import BlockSchema

if TYPE_CHECKING:
    from transferqueue.codec.row_reader import Pieces


def mixed_column(field: FieldReader, schemas: list[BlockSchema], pieces: Pieces, n_rows: int) -> Any:
    """The rows of `pieces`, whose types are `schemas` piece by piece."""
    jagged = _one_gather(field, schemas, pieces)
    if jagged is not None:
        return jagged
    rows: list[Any] = []
    start = 0
    for end in range(1, len(schemas) + 1):
        if end == len(schemas) or schemas[end].key != schemas[start].key:
            rows.extend(field.row_list(schemas[start], pieces[start:end]))
            start = end
    return _joined(field, schemas, rows)


def _one_gather(field: FieldReader, schemas: list[BlockSchema], pieces: Pieces) -> Any:
    """Dense rows of different lengths put one by one (and jagged ones among them), in one native copy."""
    first = schemas[0].shape
    if not first or 0 in first[1:] or -1 in first[1:]:
        return None
    for schema in schemas:
        plain = schema.form == forms.DENSE or (schema.form == forms.JAGGED and not schema.headers)
        if not plain or schema.dtype != schemas[0].dtype or not schema.shape or schema.shape[1:] != first[1:]:
            return None
    common = BlockSchema(forms.VERSION, forms.JAGGED, schemas[0].dtype, (-1, *first[1:]))
    data, offsets = field.rows.ragged(field.index, pieces)
    unit = from_name(str(common.dtype)).itemsize * int(np.prod(first[1:], dtype=np.int64))
    return field.jagged(data, offsets, unit, common)


def _joined(field: FieldReader, schemas: list[BlockSchema], rows: list[Any]) -> Any:
    kinds = {schema.form for schema in schemas}
    put_as = [schema.ragged_dim for schema in schemas if schema.form == forms.JAGGED]
    put_ragged = put_as[0] if put_as else 0
    if field.nested_as_jagged:
        return field.together(rows, put_ragged)
    if not kinds <= {forms.DENSE, forms.JAGGED, forms.STRIDED}:
        return lazy_stack(rows, len(rows))
    if kinds == {forms.STRIDED} and len({(row.dtype, row.dim()) for row in rows}) == 1:
        return strided_of(rows)
    if rows[0].dim() == 0:
        return lazy_stack(rows, len(rows))
    return field.together(rows, put_ragged)
