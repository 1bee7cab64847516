"""What a put and an allocation have in common: the layout of one block, known before the space for it is reserved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from transferqueue.codec.encoded_field import EncodedField, place
from transferqueue.codec.schema import schema_dict

if TYPE_CHECKING:
    from transferqueue import _native


class BlockPlan:
    """Fields with their places in one block.

    Attributes:
        n_rows: rows of the block.
        nbytes: size of the block to reserve; 0 without fields, at least 64 otherwise.
        layouts: one FieldLayout per field, in order, to be published with the block.
    """

    def __init__(self, fields: Sequence[EncodedField], n_rows: int) -> None:
        self.n_rows = n_rows
        self.nbytes = place(fields)
        self.layouts: list[_native.FieldLayout] = [field.layout() for field in fields]
        self._field_schema: dict[str, dict[str, Any]] | None = None

    @property
    def field_schema(self) -> dict[str, dict[str, Any]]:
        """Field -> `schema_dict`, for metadata."""
        # No cached_property: before Python 3.12 it takes a lock, which a forked child may find held.
        if self._field_schema is None:
            self._field_schema = {layout.name: schema_dict(layout) for layout in self.layouts}
        return self._field_schema
