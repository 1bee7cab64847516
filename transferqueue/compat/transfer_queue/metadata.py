"""Metadata as programs of TransferQueue 0.1.11 know it: the native classes, which merge and show things its way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from transferqueue.metadata import BatchMeta as NativeBatchMeta
from transferqueue.metadata import KVBatchMeta as NativeKVBatchMeta
from transferqueue.metadata.batch_state import BatchState
from transferqueue.metadata.row_shapes import RowShapes

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["BatchMeta", "KVBatchMeta"]


class BatchMeta(NativeBatchMeta):
    """Rows by global index, and their fields; see `transferqueue.BatchMeta`, which takes it wherever it takes its own.

    What differs: 1-D columns show the row shape ``(1,)``, unless the constructor was given ``()``, and `concat` refuses
    values of extra_info that differ.
    """

    __slots__ = ()

    scalar_row_shape = (1,)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, schema in self._schemas.items():
            if schema.shape == () and not schema.is_non_tensor:
                # Kept, so that it is shown as it was given.
                self._row_shapes.setdefault(name, RowShapes.uniform((), self.size))

    @classmethod
    def of(cls, meta: NativeBatchMeta) -> Self:
        """`meta` as this class. Shares everything with `meta`, which must not be used any more."""
        new = object.__new__(cls)
        for slot in BatchState.__slots__:
            if hasattr(meta, slot):  # what a put shed is said of its answer only
                setattr(new, slot, getattr(meta, slot))
        return new

    @classmethod
    def concat(  # type: ignore[override]
        cls, data: Sequence[NativeBatchMeta], validate: bool = True
    ) -> Self:
        """All rows, in order. Pieces without rows are skipped.

        Raises:
            ValueError: fields or dtypes differ, or extra_info has conflicting values.
        """
        return super().concat([meta for meta in data if meta is not None], validate=validate, on_conflict="raise")


# See the same line of `transferqueue.metadata.batch_meta`: programs build the state by these names.
BatchMeta.__slots__ = NativeBatchMeta.__slots__


class KVBatchMeta(NativeKVBatchMeta):
    """Rows by key, with tags; see `transferqueue.KVBatchMeta`. `concat` refuses values of extra_info that differ."""

    @classmethod
    def of(cls, meta: NativeKVBatchMeta) -> Self:
        """`meta` as this class. Shares everything with `meta`, which must not be used any more."""
        new = object.__new__(cls)
        vars(new).update(vars(meta))
        return new

    @classmethod
    def concat(cls, data: Sequence[NativeKVBatchMeta]) -> Self:  # type: ignore[override]
        """All rows, in order. Pieces without rows are skipped.

        Raises:
            ValueError: fields or partitions differ, a key appears twice, or extra_info has conflicting values.
        """
        pieces: list[Any] = [meta for meta in data if meta is not None]
        return super().concat(pieces, on_conflict="raise")
