"""What the index says: answers of the store, and a whole session as tables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Indexes = npt.NDArray[np.int64]
_Strings = tuple[npt.NDArray[np.uint8], Indexes]  # bytes of all, and where each ends

class PublishResult:
    partition_id: int
    partition_version: int
    indexes: Indexes  # read-only
    shed_rows: int

class RowListing:
    partition_found: bool
    indexes: Indexes
    keys: list[str | None]
    tags: list[bytes]

class SavedSession:
    """All of a session but its payload, as tables; numbers in them are positions in each other. Strings are the bytes
    of all of them one after another, and where each ends."""

    def __init__(self) -> None: ...
    next_row: int  # the next index that the session would give out; rows of other nodes may lie beyond its range
    partitions: list[str]
    known_fields: list[list[str]]  # Of each partition: every field that any row of it ever had
    # int64 [blocks, 5]: partition, rows, nbytes, number of fields, and of names of payload on other nodes the size of
    # what the rows have there (-1: the block is the payload).
    blocks: Indexes
    @property
    def fields(self) -> tuple[Indexes, _Strings, _Strings]:
        """Of the blocks one after another: int64 [fields, 5] as in FieldLayout (kind, data_offset, data_nbytes,
        row_nbytes, offsets_offset), names, schemas."""
    runs: Indexes  # int64 [runs, 4]: partition, first row, rows, number of cells; ascending. Every row is in one
    cells: Indexes  # int64 [cells, 3]: block, row in it of the run's first row, number of fields
    cell_fields: Indexes  # Of the cells one after another: positions in the fields of the block
    rows: Indexes  # int64 [rows, 2]: partition, row; those that have a key or tags, ascending
    keys: _Strings  # Of `rows`; empty: none
    tags: _Strings
    @property
    def tasks(self) -> list[tuple[int, str, bytes, Indexes]]:
        """Partition, name, state of the sampler, int64 [ranges, 2] of consumed rows: first, count."""
    def set_partitions(self, names: Sequence[str], known_fields: Sequence[Sequence[str]]) -> None: ...
    def set_blocks(self, blocks: Indexes, fields: Indexes, names: _Strings, schemas: _Strings) -> None: ...
    def set_runs(self, runs: Indexes, cells: Indexes, cell_fields: Indexes) -> None: ...
    def set_rows(self, rows: Indexes, keys: _Strings, tags: _Strings) -> None: ...
    def add_task(self, partition: int, name: str, sampler_state: bytes, consumed: Indexes) -> None: ...

class SessionSnapshot:
    """A whole session as it was at one commit; its blocks are leased while this lives and is not released."""

    session: SavedSession
    @property
    def parts(self) -> Indexes:
        """int64 [parts, 4]: block, offset in the saved block, offset in the block as it lies, nbytes; all its bytes."""
    def address(self, block: int, offset: int, nbytes: int) -> int:
        """Where bytes of a block lie, by their offset in the block as it lies; read-only."""
    def release(self) -> None: ...

class TaskSnapshot:
    partition_found: bool
    task_version: int
    sampler_state: bytes
    ready: Indexes
    claimed: Indexes  # of others, and not over: whatever fields these rows have
    next_lapse_s: float | None  # seconds until the first of those claims runs out

class AlreadyApplied(Exception): ...  # what was asked for under this number was done before

class RequestRecord:  # what its kind does not have is 0 or empty
    kind: str  # "publish", "consume" (task_commit), "claim" (extend_claim, too), "clear" or "other"
    reply: bytes  # as given to `request`
    indexes: Indexes  # publish, consume, claim: the rows, in the order of the call
    partition_id: int
    partition_version: int
    shed_rows: int
    fencing: int
    deadline_s: float  # on claim_clock
    rows: int  # clear: how many were there; -1: no such partition
