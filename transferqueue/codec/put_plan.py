"""What a put will write, decided before the space for it is reserved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.utils import dlpack

from transferqueue.codec.block_plan import BlockPlan
from transferqueue.codec.encoded_field import EncodedField, copy_strided, reading

if TYPE_CHECKING:
    from transferqueue import _native


class PutPlan(BlockPlan):
    """Rows x fields on their way into one block.

    The plan holds references to the caller's tensors until `write`; it copies none of their bytes before.

    Attributes:
        batch_info: constants of the whole batch (NonTensorData entries) by name: the caller puts them into extra_info.
    """

    def __init__(self, fields: list[EncodedField], n_rows: int, batch_info: dict[str, Any]) -> None:
        super().__init__(fields, n_rows)
        self.batch_info = batch_info
        self._fields: list[EncodedField] | None = fields

    def write(self, reservation: _native.Reservation) -> None:
        """Copies every byte once, into the reserved extent; nothing of the batch is referenced afterwards.

        Contiguous memory goes in one native call without the GIL; what is strided, expanded, conjugated or on another
        device is laid out by torch while it copies.

        Raises:
            RuntimeError: the plan was written before. SchemaMismatchError: see `reading`.
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
                    with reading(field.name):
                        copy_strided(dlpack.from_dlpack(capsule), source)
