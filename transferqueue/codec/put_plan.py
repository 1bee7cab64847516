"""What a put will write, decided before the space for it is reserved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.utils import dlpack

from transferqueue.codec.encoded_field import EncodedField, copy_strided, place
from transferqueue.codec.schema import schema_dict

if TYPE_CHECKING:
    from transferqueue import _native


class PutPlan:
    """Rows x fields on their way into one block.

    The plan holds references to the caller's tensors until `write`; it copies none of their bytes before.

    Attributes:
        n_rows: rows of the batch.
        nbytes: size of the block to reserve; 0 when the batch has no fields, at least 64 otherwise.
        layouts: one FieldLayout per field, in the order of the batch, to be published with the block.
        batch_info: constants of the whole batch (NonTensorData entries) by name: the caller puts them into extra_info.
    """

    def __init__(self, fields: list[EncodedField], n_rows: int, batch_info: dict[str, Any]) -> None:
        self.n_rows = n_rows
        self.batch_info = batch_info
        self.nbytes = place(fields)
        self.layouts: list[_native.FieldLayout] = [field.layout() for field in fields]
        self._fields: list[EncodedField] | None = fields
        self._field_schema: dict[str, dict[str, Any]] | None = None

    @property
    def field_schema(self) -> dict[str, dict[str, Any]]:
        """Field -> `schema_dict`, for metadata."""
        # No cached_property: before Python 3.12 it takes a lock, which a forked child may find held.
        if self._field_schema is None:
            self._field_schema = {layout.name: schema_dict(layout) for layout in self.layouts}
        return self._field_schema

    def write(self, reservation: _native.Reservation) -> None:
        """Copies every byte once, into the reserved extent; nothing of the batch is referenced afterwards.

        Contiguous memory goes in one native call without the GIL; what is strided, expanded, conjugated or on another
        device is laid out by torch while it copies.

        Raises:
            RuntimeError: the plan was written before.
        """
        fields, self._fields = self._fields, None
        if fields is None:
            raise RuntimeError("this plan was written already: plan the put again")
        writes = [write for field in fields for write in field.placed_writes()]
        if writes:
            reservation.copy_in(writes)
        for field in fields:
            for offset, source in field.copies:
                nbytes = source.numel() * source.element_size()
                if nbytes:
                    capsule = reservation.writable(field.data_offset + offset, nbytes)
                    copy_strided(dlpack.from_dlpack(capsule), source)
