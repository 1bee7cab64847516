"""Blocks: how rows lie in them, room for one that is being written, and rows that are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from transferqueue._native.tables import Indexes

class FieldLayout:  # how one field lies in a block; offsets in bytes from the start of the block
    def __init__(
        self,
        name: str,
        kind: int,
        data_offset: int,
        data_nbytes: int,
        row_nbytes: int = 0,
        offsets_offset: int = 0,
        schema: bytes = b"",
    ) -> None: ...
    name: str
    kind: int
    data_offset: int
    data_nbytes: int
    row_nbytes: int
    offsets_offset: int
    schema: bytes

class Reservation:
    """A pending extent. Dropped unpublished, it is given back at the next call (not in the destructor)."""

    offset: int
    nbytes: int
    @property
    def spilled(self) -> bool:
        """It lies in the spill file: `copy_in` writes to it, nothing else does."""
    def copy_in(self, writes: Sequence[tuple[int, int, int]]) -> None:
        """(offset in the extent, source address, nbytes) each; parallel where it pays; no GIL."""
    def writable(self, offset: int, nbytes: int) -> Any: ...  # DLPack capsule (uint8, 1-D) on the shared mapping
    def map_for_producer(self) -> None:
        """Gives the extent a shared writable mapping of its own, whose tensors may outlive commit or abort."""
    def producer_tensor(self, offset: int, nbytes: int) -> Any:
        """DLPack capsule (uint8, 1-D) on that mapping; counted while alive."""
    def producer_tensors(self, plan: TensorPlan) -> dict[str, Any]:
        """One tensor a column of the plan, on that mapping, which is made; each counted while alive."""
    def producer_tensors_alive(self) -> int: ...
    def abandon(self) -> None:
        """Gives the space back now, or when the last producer tensor dies."""

class TensorPlan:  # the tensors over a block, described once for all allocations of one kind
    columns: list[tuple[str, int, int, tuple[int, ...], int]]
    def __init__(
        self, adopt: Callable[[Any], Any], columns: Sequence[tuple[str, int, int, tuple[int, ...], int]]
    ) -> None:
        """Columns: name, DLPack type code, bits, shape, offset in the block. `adopt(capsule)` returns a tensor."""

class ColumnTypes:  # how fields are read whole, by the bytes of their schema; `describe` is asked once per schema
    def __init__(self, describe: Callable[[bytes], Any], adopt: Callable[[Any], Any]) -> None:
        """`describe(schema)` returns None (the codec reads such fields) or (COLUMN_* kind, DLPack type code, bits,
        shape of a dense row or of one step of the ragged dimension, whether that is a row's first, whether a dense
        column is ready as `adopt` makes it, tag). `adopt(capsule)` returns a tensor."""

class Resolved:
    """Rows x fields at one snapshot, leased while this object or a view made from it is alive."""

    partition_found: bool
    partition_version: int
    indexes: Indexes  # by key: -1 where unknown
    gone: Indexes  # positions of rows that do not exist
    fields: list[str]
    n_rows: int
    complete: bool  # every requested row exists and has every field
    n_blocks: int
    def columns(
        self, types: ColumnTypes, fields: Sequence[str], *, views: bool, shared: bool, copy_below: int
    ) -> tuple[dict[str, Any], list[Any], list[Any], int, int]:
        """Whole columns of all requested rows, in one pass and one copy.

        Returns (columns, rest, offsets, bytes viewed, bytes copied).
        `columns` has the fields in their order: dense tensors that are ready, and None for the rest. `rest` has
        (field, parts) of those. Parts are None (rows missing, or of types that cannot be read as one column here), or
        (kind, tag of the first row's type, DLPack capsule), for COLUMN_RAGGED with three more: number of its offsets,
        shortest and longest row in steps. The capsule is a row-major tensor: dense [rows, *row shape]; ragged [steps,
        *step shape]; bytes uint8 [nbytes], rows one after another; None without bytes. Rows that differ in the size
        of their first dimension only become COLUMN_RAGGED. `offsets` are int64 [rows + 1] capsules, one for all fields
        with equal ones.

        One stretch of at least `copy_below` bytes is viewed (see `view`), unless `views` is false or no mapping can be
        made; the rest is gathered, into memory of its own for each field. CorruptSegmentError: rows that are not what
        their type says."""
    def pieces(self, field: int) -> npt.NDArray[np.int64]:
        """int64 [p, 4]: first requested row, count, block, row in block; rows not covered are not ready."""
    def piece_list_id(self, field: int) -> int:
        """Fields with the same id have the same pieces."""
    def block_rows(self, block: int) -> int: ...
    def block_id(self, block: int) -> int:
        """Names the block's bytes: no two blocks of a session ever have the same id. Below 2**40. What moves (to the
        spill file, by compaction) is another block from then on."""
    def block_spilled(self, block: int) -> bool:
        """Whether it lies in the spill file."""
    def layout(self, field: int, block: int) -> FieldLayout | None: ...
    def schemas(self, field: int) -> list[bytes]:
        """The distinct types of the field's rows, in the order of first use."""
    def view(self, block: int, offset: int, nbytes: int, *, shared: bool = False) -> Any:
        """DLPack capsule (uint8, 1-D, exactly these bytes) on a private copy-on-write mapping of the block, or with
        `shared` on the read-only one. All views of one Resolved share one mapping per block. Raises MemoryError when
        no further mapping can be made (the caller copies instead)."""
    def view_address(self, block: int, offset: int) -> int:
        """Address on the read-only mapping, valid while this Resolved lives."""
    def copy_rows(
        self, field: int, pieces: npt.NDArray[np.int64], destination_address: int, destination_nbytes: int
    ) -> int:
        """Concatenates the rows of `pieces` (as in `pieces()`), in order, at the destination. Returns bytes written.
        Dense and ragged only. Parallel where it pays."""
    def row_nbytes(self, field: int, pieces: npt.NDArray[np.int64]) -> Indexes:
        """Bytes of each row of `pieces`, in order (ragged: from the offsets)."""
    def column_bytes(self, field: int, block: int) -> bytes:
        """A copy of the blob of a COLUMN field."""
    def release(self) -> None:
        """Drops this object's own leases now (views keep theirs)."""
    def finish(self) -> None:
        """`release`, and counts a get of all rows, which took from `resolve` until now."""
    def count(self, viewed_nbytes: int, copied_nbytes: int) -> None:
        """Bytes of the get that were handed out otherwise than by `columns`."""
