"""``meta.samples``: the rows of a batch one by one, made when asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    from transferqueue.metadata.batch_meta import BatchMeta


class SampleView:
    """One row of a batch, read-only. It follows the batch: after a reorder it shows the row now at its position."""

    __slots__ = ("_meta", "_position")

    def __init__(self, meta: BatchMeta, position: int) -> None:
        self._meta = meta
        self._position = position

    @property
    def global_index(self) -> int:
        return self._meta.global_indexes[self._position]

    @property
    def partition_id(self) -> str:
        return self._meta.partition_ids[self._position]

    @property
    def production_status(self) -> int:
        """1 when every field of the batch is produced on this row."""
        return int(self._meta.production_status[self._position])

    @property
    def custom_meta(self) -> Mapping[str, Any]:
        return MappingProxyType(self._meta.custom_meta[self._position])

    @property
    def fields(self) -> Mapping[str, Mapping[str, Any]]:
        """Field -> its schema on this row; the shape of a nested field is this row's own."""
        rows = self._meta.field_schema.row(self._position)
        return MappingProxyType({name: MappingProxyType(entries) for name, entries in rows.items()})

    def __repr__(self) -> str:
        return (
            f"SampleView(global_index={self.global_index}, partition_id={self.partition_id!r}, "
            f"production_status={self.production_status}, fields={self._meta.field_names})"
        )


class SampleList(Sequence[SampleView]):
    """The rows of a batch as a sequence of `SampleView`."""

    __slots__ = ("_meta",)

    def __init__(self, meta: BatchMeta) -> None:
        self._meta = meta

    def __len__(self) -> int:
        return len(self._meta)

    @overload
    def __getitem__(self, item: int) -> SampleView: ...
    @overload
    def __getitem__(self, item: slice) -> list[SampleView]: ...
    def __getitem__(self, item: int | slice) -> SampleView | list[SampleView]:
        if isinstance(item, slice):
            return [SampleView(self._meta, position) for position in range(*item.indices(len(self)))]
        position = item + len(self) if item < 0 else item
        if not 0 <= position < len(self):
            raise IndexError(f"sample {item} is out of range for {len(self)} rows")
        return SampleView(self._meta, position)

    def __iter__(self) -> Iterator[SampleView]:
        return (SampleView(self._meta, position) for position in range(len(self)))
