"""Rows by the user's own keys, with their tags."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from transferqueue.errors import SchemaMismatchError, name_some
from transferqueue.metadata import kv_wire, padding
from transferqueue.metadata.batch_rows import common_session
from transferqueue.metadata.copying import copy_info, copy_row_dicts
from transferqueue.metadata.extra_info import OnConflict, Reduction, merge_extra_info, values_equal
from transferqueue.metadata.kv_keys import checked_keys, refuse_duplicates
from transferqueue.metadata.row_selection import as_permutation, as_positions, chunk_slices, item_positions

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Self


@dataclasses.dataclass(eq=False, repr=False)
class KVBatchMeta:
    """Keys of one partition, in order, and what they are used with. Holds no payload.

    The attributes may be reassigned; the constructor copies all of them.

    Args:
        keys: one string per row, no two the same (pads excepted, which repeat a row).
        tags: one dict per row.
        partition_id: the partition of all rows.
        fields: the fields that a get or a bridged method reads; `None` means all that the rows have.
        extra_info: values of the batch as a whole.
        session: name of the session that holds the rows.

    Raises:
        ValueError: keys and tags differ in length, or a key or field is named twice.
    """

    keys: list[str] = dataclasses.field(default_factory=list)
    tags: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    partition_id: str | None = None
    fields: list[str] | None = None
    extra_info: dict[str, Any] = dataclasses.field(default_factory=dict)
    session: str | None = dataclasses.field(default=None, kw_only=True)

    _pads: NDArray[np.bool_] | None = dataclasses.field(default=None, init=False)
    _shed_rows: int = dataclasses.field(default=0, init=False)  # set on the answer to a put

    def __post_init__(self) -> None:
        self.keys = checked_keys(self.keys)
        if len(self.keys) != len(self.tags):
            raise ValueError(f"keys and tags must have same length, got {len(self.keys)} and {len(self.tags)}")
        refuse_duplicates(self.keys, "Got duplicated keys")
        if self.fields is not None:
            self.fields = [self.fields] if isinstance(self.fields, str) else list(self.fields)
            refuse_duplicates(self.fields, "Got duplicated fields")
        self.tags = copy_row_dicts(self.tags)
        self.extra_info = copy_info(self.extra_info)

    @classmethod
    def empty(cls, extra_info: Mapping[str, Any] | None = None) -> Self:
        """A batch without rows."""
        return cls(extra_info=copy_info(extra_info))

    @property
    def size(self) -> int:
        """Number of rows, pads included."""
        return len(self.keys)

    @property
    def shed_rows(self) -> int:
        """Of the answer to a put: rows that limits of the partition removed for it, or of it; not shipped."""
        return self._shed_rows

    def __len__(self) -> int:
        return len(self.keys)

    # Pads

    @property
    def num_padding(self) -> int:
        mask = self._mask()
        return 0 if mask is None else int(mask.sum())

    @property
    def padding_mask(self) -> NDArray[np.bool_]:
        """A fresh bool array [rows], True where a row is a pad."""
        return padding.full_mask(self._mask(), self.size)

    def pad_to_divisor(self, divisor: int) -> Self:
        """A new batch whose size `divisor` divides: the last row repeated, flagged. No rows stay no rows."""
        added = padding.rows_to_add(self.size, divisor)
        if added == 0:
            return self.copy()
        new = self._take(np.concatenate((np.arange(self.size), np.full(added, self.size - 1))))
        new._pads = padding.pad_mask(self._mask(), self.size, added)
        return new

    def unpad(self) -> Self:
        """A new batch without the pads."""
        mask = self._mask()
        return self.copy() if mask is None else self._take(np.flatnonzero(~mask))

    # Splitting and joining

    def copy(self) -> Self:
        """A deep copy."""
        return self._take(slice(None))

    def __copy__(self) -> Self:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.copy()

    def select(self, indices: Sequence[int] | NDArray[Any]) -> Self:
        """A new batch of the rows at those positions, in that order; or where a boolean array is True.

        Raises `ValueError` for a position outside [0, size) or a row selected twice, `TypeError` for anything but ints.
        """
        positions = as_positions(indices, self.size, what="indices")
        new = self._take(positions)
        refuse_duplicates(new._stored_keys(), "Got duplicated keys")
        return new

    def select_keys(self, keys: Sequence[str]) -> Self:
        """A new batch of those keys, in that order.

        Raises `ValueError` when a key is named twice, `RuntimeError` when one is not in this batch.
        """
        wanted = [keys] if isinstance(keys, str) else list(keys)
        refuse_duplicates(wanted, "Contain duplicate keys")
        # A pad repeats a key: the first of the two is the row itself.
        positions = {key: position for position, key in reversed(list(enumerate(self.keys)))}
        unknown = [key for key in wanted if key not in positions]
        if unknown:
            raise RuntimeError(f"Keys not found in current batch: {name_some(unknown)}; it has {self.size} keys")
        return self._take(np.array([positions[key] for key in wanted], dtype=np.int64))

    def __getitem__(self, item: int | slice) -> Self:
        """A new batch of one row (`IndexError` outside) or of a slice of rows."""
        return self._take(item_positions(item, self.size, "KVBatchMeta"))

    def chunk(self, chunks: int) -> list[Self]:
        """`chunks` consecutive pieces; the first ``size % chunks`` are one row longer, some may be empty."""
        return [self._take(rows) for rows in chunk_slices(self.size, chunks)]

    def reorder(self, indexes: Sequence[int] | NDArray[np.int64]) -> None:
        """Puts the row at ``indexes[i]`` at position i, in place.

        Raises `ValueError` when `indexes` is not a permutation of the rows.
        """
        self._check_lengths()
        order = as_permutation(indexes, self.size, what="indexes")
        mask = self._mask()
        self.keys = [self.keys[position] for position in order.tolist()]
        self.tags = [self.tags[position] for position in order.tolist()]
        self._pads = padding.take_mask(mask, order)

    @classmethod
    def concat(
        cls,
        data: Sequence[KVBatchMeta],
        reduce: Mapping[str, Reduction] | None = None,
        *,
        validate: bool = True,
        on_conflict: OnConflict = "collect",
    ) -> Self:
        """A new batch of all rows, in order. Pieces without rows are skipped; none left gives an empty batch.

        Args:
            data: the pieces, of one partition and with the same fields (`None` agrees with any).
            reduce: how values of extra_info become one, by key; see `merge_extra_info`.
            validate: `False` takes partition and fields of the first piece unchecked.
            on_conflict: values that differ and have no rule are listed (``"collect"``) or refused (``"raise"``).

        Raises:
            ValueError: partitions, fields or sessions differ (both are named), a key appears twice, or values conflict
                under ``"raise"``.
        """
        listed = list(data)
        session = common_session([piece.session for piece in listed], "KVBatchMeta.concat")
        filled = [piece for piece in listed if piece.size]
        used = filled or listed[:1]
        if not used:
            return cls()
        for piece in used:
            piece._check_lengths()
        if validate:
            _check_partitions_and_fields(used)
        new = object.__new__(cls)
        new.keys = [key for piece in used for key in piece.keys]
        new.tags = [tag for piece in used for tag in copy_row_dicts(piece.tags)]
        new.partition_id = used[0].partition_id
        new.fields = next((list(piece.fields) for piece in used if piece.fields is not None), None)
        new.extra_info = merge_extra_info(
            [piece.extra_info or {} for piece in filled or listed],
            reduce=reduce,
            on_conflict=on_conflict,
            owner="KVBatchMeta.concat",
        )
        new.session = session
        new._pads = padding.concat_masks([piece._mask() for piece in used], [piece.size for piece in used])
        refuse_duplicates(new._stored_keys(), "Got duplicated keys")
        return new

    # Values and pickling

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, KVBatchMeta):
            return NotImplemented
        return (
            (self.keys, self.partition_id, self.fields, self.session)
            == (other.keys, other.partition_id, other.fields, other.session)
            and values_equal(self.tags, other.tags)
            and values_equal(self.extra_info, other.extra_info)
            and np.array_equal(self.padding_mask, other.padding_mask)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        pads = f", num_padding={self.num_padding}" if self.num_padding else ""
        return (
            f"{type(self).__name__}(size={self.size}, keys=[{name_some(self.keys)}], "
            f"partition_id={self.partition_id!r}, fields={self.fields}{pads}, extra_info={self.extra_info})"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        self._check_lengths()
        return kv_wire.reduce(self, self._mask())

    # Internals

    def _take(self, selection: slice | NDArray[np.int64]) -> Self:
        self._check_lengths()
        new = object.__new__(type(self))
        if isinstance(selection, slice):
            new.keys, tags = self.keys[selection], self.tags[selection]
        else:
            positions = selection.tolist()
            new.keys, tags = [self.keys[at] for at in positions], [self.tags[at] for at in positions]
        new.tags = copy_row_dicts(tags)
        new.partition_id = self.partition_id
        new.fields = None if self.fields is None else list(self.fields)
        new.extra_info = copy_info(self.extra_info)
        new.session = self.session
        new._pads = padding.take_mask(self._mask(), selection)
        return new

    def _mask(self) -> NDArray[np.bool_] | None:
        """The pad flags; those of other keys, when a program assigned another number of them, mean nothing."""
        return self._pads if self._pads is not None and len(self._pads) == len(self.keys) else None

    def _stored_keys(self) -> list[str]:
        mask = self._mask()
        if mask is None:
            return self.keys
        return [key for key, pad in zip(self.keys, mask.tolist(), strict=True) if not pad]

    def _check_lengths(self) -> None:
        if len(self.keys) != len(self.tags):
            raise ValueError(
                f"keys and tags must have same length, got {len(self.keys)} and {len(self.tags)}: one was reassigned"
            )


def _check_partitions_and_fields(pieces: Sequence[KVBatchMeta]) -> None:
    first = pieces[0]
    named = next((piece.fields for piece in pieces if piece.fields is not None), None)
    for number, piece in enumerate(pieces):
        if piece.partition_id != first.partition_id:
            raise ValueError(
                f"KVBatchMeta.concat: Partition do not match: {first.partition_id!r} in the first piece, "
                f"{piece.partition_id!r} in number {number}"
            )
        if piece.fields is not None and named is not None and set(piece.fields) != set(named):
            raise SchemaMismatchError(
                f"KVBatchMeta.concat: Field names do not match: {sorted(named)} and {sorted(piece.fields)} "
                f"in number {number}",
                expected=sorted(named),
                found=sorted(piece.fields),
            )
