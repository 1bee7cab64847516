"""What a put and an allocation have in common: the layout of one block, known before the space for it is reserved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from transferqueue.codec.encoded_field import EncodedField, place

if TYPE_CHECKING:
    from transferqueue import _native


class BlockPlan:
    """Fields with their places in one block.

    Attributes:
        n_rows: rows of the block.
        nbytes: size of the block to reserve; 0 without fields, at least 64 otherwise.
        layouts: one FieldLayout per field, in order, to be published with the block.
        schemas: field -> `schema_bytes`, from which `schema_dict` makes what metadata carries.
        types: the client's: what metadata says of the fields. None until it has looked.
    """

    def __init__(self, fields: Sequence[EncodedField], n_rows: int) -> None:
        self.n_rows = n_rows
        self.nbytes = place(fields)
        self.layouts: list[_native.FieldLayout] = [field.layout() for field in fields]
        self.schemas: dict[str, bytes] = {field.name: field.schema for field in fields}
        self.types: Any = None
