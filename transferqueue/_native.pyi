"""Contract of the native core. One `Store` is one process's attachment to a session.

Every method releases the GIL, may be called from any thread, and raises the classes of `transferqueue.errors`.
Bytes named by addresses are kept alive by the caller for the duration of the call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

DENSE: int  # FieldLayout kinds
RAGGED: int
COLUMN: int
COLUMN_DENSE: int  # kinds of columns read whole
COLUMN_RAGGED: int
COLUMN_BYTES: int
LAYOUT_VERSION: int
BUILD_FINGERPRINT: int
PAUSE_POINTS: bool  # pause points are compiled in

def is_spill_file(fd: int) -> bool:
    """Whether it is a spill file of any session and version, or one whose creator died before it was finished."""

Indexes = npt.NDArray[np.int64]
_Strings = tuple[npt.NDArray[np.uint8], Indexes]  # bytes of all, and where each ends

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

class PublishResult:
    partition_id: int
    partition_version: int
    indexes: Indexes  # read-only
    shed_rows: int

def distinct(indexes: Indexes) -> bool:
    """Whether no index stands there twice."""

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
    blocks: Indexes  # int64 [blocks, 4]: partition, rows, nbytes, number of fields
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

class Store:
    @staticmethod
    def format(
        directory: str,
        control_fd: int,
        table_fd: int,
        payload_fd: int,
        *,
        session: str,
        payload_bytes: int,
        index_bytes: int,
        step_bytes: int,
        spill_fd: int = -1,
        spill_bytes: int = 0,
        first_row: int = 0,
    ) -> None:
        """Creator only: sizes, reserves and formats the segments and the index (`directory/index`, `/leases`).

        `first_row`: where global indexes begin, a multiple of 2**50 below 2**62; at most 2**49 are given out."""
    def __init__(
        self, directory: str, control_fd: int, table_fd: int, payload_fd: int, *, session: str, spill_fd: int = -1
    ) -> None:
        """Attaches; the descriptors are duplicated. LayoutMismatchError, CorruptSegmentError, SessionNotFoundError."""
    def close(self) -> None:
        """Idempotent. Views stay readable; their leases live until they die. Later calls raise ClosedError."""
    closed: bool
    owner: int
    def end_session(self) -> None:
        """Sets the ended word and wakes everybody: their next call raises SessionNotFoundError."""
    ended: bool

    # puts; lock_timeout_s: the longest wait for a lock that a stopped process keeps (None: 30 s): TransferTimeoutError
    def reserve(
        self, nbytes: int, timeout_s: float | None, ahead: bool = False, *, lock_timeout_s: float | None = None
    ) -> Reservation:
        """Waits for room up to timeout_s (None: for ever; 0: not at all), then StorageFullError. ahead: a small one may
        come from what this process reserved ahead, without a transaction, and be up to half as large again."""
    def publish(
        self,
        partition: str,
        *,
        count: int = 0,
        indexes: Indexes | None = None,
        keys: Sequence[str] | None = None,
        reservation: Reservation | None = None,
        fields: Sequence[FieldLayout] = (),
        tags: Sequence[bytes] = (),
        exclusive_keys: bool = False,
        create_rows: bool = False,
        lock_timeout_s: float | None = None,
    ) -> PublishResult:
        """One transaction. indexes: those rows (StaleMetadataError when one is gone); keys: the rows of the keys, made
        when missing; neither: `count` new rows. Makes producer mappings private first.
        create_rows: of `indexes`, those that do not exist are made with exactly that index; also without a reservation
        (bare rows). ValueError for an index that the session is yet to give out itself: from the next one up to
        first_row + 2**49. The rest of [first_row, first_row + 2**50) and what lies outside of it is never given out. A
        row that was cleared and is made again is the sample that it was: marks and claims of tasks on it stand. With
        `keys`, one a row, all rows and keys must be new."""
    def reserve_headroom(self, nbytes: int) -> Reservation:
        """Of the room that only moves may take, so that a full store can be compacted. StorageFullError."""
    def reserve_spilled(self, nbytes: int) -> Reservation:
        """A place in the spill file, for rows that are rewritten there. StorageFullError."""
    def move(
        self,
        source: Resolved,
        reservation: Reservation,
        fields: Sequence[FieldLayout],
        *,
        compaction: bool = False,
        lock_timeout_s: float | None = None,
    ) -> int:
        """Compare-and-set publication of a rewritten copy, counted as coalesced or compacted. Returns cells moved."""

    # the whole session
    def save(self) -> SessionSnapshot: ...
    def reserve_all(self, sizes: Indexes) -> list[Reservation]:
        """One reservation a size, or StorageFullError and none. Does not wait."""
    def load(self, session: SavedSession, reservations: Sequence[Reservation], *, check_only: bool = False) -> None:
        """One commit: all rows of the session are replaced, block i of `session` lies in reservation i. ValueError: not
        the tables of a session. On an error nothing changed; nor does it with `check_only`."""

    # gets
    def resolve(
        self,
        partition: str,
        *,
        indexes: Indexes | None = None,
        keys: Sequence[str] | None = None,
        fields: Sequence[str] | None = None,
        lease: bool = True,
    ) -> Resolved: ...

    # rows
    def find_keys(self, partition: str, keys: Sequence[str]) -> tuple[bool, Indexes]: ...
    def list_rows(self, partition: str) -> RowListing: ...
    def describe_rows(self, partition: str, indexes: Indexes) -> RowListing: ...
    def merge_tags(self, partition: str, indexes: Indexes, tags: Sequence[bytes]) -> None: ...
    def clear_rows(
        self, partition: str, *, indexes: Indexes | None = None, keys: Sequence[str] | None = None
    ) -> int: ...
    def clear_partition(self, partition: str) -> bool: ...
    def partitions(self) -> list[str]: ...
    def ensure_partition(self, partition: str) -> int: ...
    def field_names(self, partition: str) -> list[str]: ...
    def production(
        self, partition: str, fields: Sequence[str], indexes: Indexes | None = None
    ) -> tuple[bool, Indexes, npt.NDArray[np.int8], list[bool]]:
        """(partition found, indexes, int8 [rows, fields], field known)."""
    def consumption(self, partition: str, task: str) -> tuple[bool, Indexes, npt.NDArray[np.int8]]: ...
    def unconsumed_rows(self, partition: str) -> int:
        """Rows with data that no task has consumed; 0 for a partition that does not exist."""
    def consumed_rows(self, partition: str, task: str) -> int | None:
        """Rows that the task has consumed since it was reset, cleared ones included. None: no such partition."""
    def task_snapshot(self, partition: str, task: str, fields: Sequence[str]) -> TaskSnapshot: ...
    def task_commit(
        self,
        partition: str,
        task: str,
        task_version: int,
        fields: Sequence[str],
        consumed: Indexes,
        sampler_state: bytes,
        *,
        lock_timeout_s: float | None = None,
    ) -> bool: ...
    def task_reset(self, partition: str, task: str | None) -> None: ...
    def lock_task(self, partition: str, task: str, timeout_s: float) -> Any:
        """Context manager: the robust lock of that (partition, task), for a sampler that lost four races."""
    def mark_rows(self, partition: str, task: str, rows: Indexes, sampler_state: bytes | None) -> None:
        """Of a copy: consumed, whatever they are, and the sampler's state (None: as it is). A numbered request, too."""
    def rename_partition(self, partition: str, to: str, next_claim: int) -> bool:
        """Nothing else is called so from then on; claims get `next_claim` or more. False: no such partition."""

    # requests that may be asked for again: each of them is done once
    def request(self, request_id: bytes, reply: bytes = b"") -> Any:
        """Context manager: the next call of this thread that changes what others see is recorded under the 16 bytes, in
        the transaction of the change. Are they on record already, it changes nothing: AlreadyApplied. Such calls are
        publish, move, clear_*, merge_tags, task_commit, task_reset, *claim, set_limits, set_weight_version and load;
        refused ones (a conflict, an error) do not count, and after the first one nothing is recorded. Not inherited by
        fork. Kept for ten minutes, the newest 65,536 (and as many as the index has pages)."""
    def find_request(self, request_id: bytes) -> RequestRecord | None: ...
    def drop_requests(self) -> int: ...  # forgets those that are over

    # claims: rows given to somebody who has yet to say whether it is done with them
    def claim(
        self,
        partition: str,
        task: str,
        task_version: int,
        fields: Sequence[str],
        rows: Indexes,
        sampler_state: bytes,
        lease_s: float,
        *,
        lock_timeout_s: float | None = None,
    ) -> tuple[int, float] | None:
        """As task_commit, but the rows are claimed by this process instead of consumed. (fencing number, deadline in
        seconds on the clock of claims); None on conflict."""
    def finish_claim(self, partition: str, task: str, fencing: int, consumed: bool) -> None:
        """Its rows are consumed, or offered again. StaleMetadataError when the claim is over."""
    def extend_claim(self, partition: str, task: str, fencing: int, lease_s: float) -> float:
        """The claim is this process's from now on, and runs for `lease_s`. Returns the deadline. StaleMetadataError."""
    def drop_claims(self) -> int:
        """Removes the claims that are over and wakes who waits for their rows; number of partitions concerned."""

    # limits
    @property
    def limit_epoch(self) -> int:
        """Changes when limits are set; 0: they never were."""
    def set_limits(self, pattern: str, settings: dict[str, Any]) -> None:
        """For all partitions that the pattern names, those to come included. A setting that is missing stays; a cap of
        None is none."""
    def remove_limits(self, pattern: str) -> bool:
        """Takes the rule of exactly this name or pattern away. False: there was none."""
    def limit_rules(self) -> list[tuple[str, dict[str, Any]]]: ...
    def limit_report(self, partition: str) -> dict[str, Any]:
        """See `PartitionLimits`; of a partition that does not exist, what it would get."""
    def set_weight_version(self, partition: str, version: int) -> bool:
        """False where no max_version_lag holds: then nothing changes."""
    def look_at_limits(
        self,
        partition: str,
        *,
        count: int = 0,
        indexes: Indexes | None = None,
        keys: Sequence[str] | None = None,
        nbytes: int = 0,
        tags: Sequence[bytes] = (),
    ) -> None:
        """LimitExceededError when what is there now would refuse such a put."""
    def count_limit(self, *, waited: bool = False, refused: bool = False, shed_rows: int = 0) -> None: ...

    # waiting
    def wake_word(self, partition: str | None) -> int:
        """The 32-bit sequence word of the partition (None: the session's own, bumped by every commit)."""
    def wait_word(self, partition: str | None, seen: int, timeout_s: float) -> bool:
        """Sleeps (futex) until the word differs from `seen`; False after timeout_s. Call in slices of at most 0.1 s."""
    def wait_change(self, partition: str, seen: int, version: int, timeout_s: float) -> bool:
        """Sleeps until the partition's word or version differs (a look every 0.1 to 0.5 s); False after timeout_s."""
    def wake(self, partition: str | None) -> None: ...
    def partition_version(self, partition: str) -> int: ...

    # service
    def reclaim(self) -> int:
        """Frees retired blocks without a lease, gives extents of the dead back, finishes clears. Bytes freed."""
    def reap(self) -> list[tuple[int, int]]: ...  # dead clients found and cleaned now: (owner, pid)
    def populate(self, nbytes: int) -> int: ...  # backs and touches up to nbytes more of free space; bytes populated
    def make_huge(self, nbytes: int) -> int:
        """Turns the next nbytes of touched memory into huge pages; bytes gone through, 0 for nothing to do now."""
    def trim(self) -> int:
        """Gives the backing of free space, in memory and on disk, back to the system; bytes given back. And this
        process's gather pool."""
    def spill(self, nbytes: int, contiguous: bool = False) -> int:
        """Moves blocks that nobody leases to the spill file, least recently used first, until nbytes of memory (or a
        little more) became free; at most 256 MiB a call. `contiguous`: those that leave nbytes free in one piece, the
        least recently used of such. Returns the bytes that became free; 0: no spill file, nothing to move, no room on
        the disk. Raises CorruptSegmentError (the file was cut) or OSError (the disk failed)."""
    def sparse_blocks(
        self, after: int = 0, within: tuple[int, int] | None = None, spilled: bool = False
    ) -> tuple[int, Indexes, list[tuple[str, list[str]]], Indexes, Indexes]:
        """Published blocks that rows name in part only, and those in the headroom.
        Returns (next, blocks, groups, shapes, ranges). With `within` (offset, nbytes): those that reach into it. With
        `spilled`: of the spill file, else of memory. A bounded number behind the block `after`; `next` is where to go
        on, 0 at the end. blocks, int64 [b, 6]: ref, offset, nbytes, bytes that rows name (exact; 0 for leased ones), in
        the headroom, leased. groups: (partition, fields) of cells that can lie in one block. shapes, int64 [s, 2]:
        block, group. ranges, int64 [r, 3]: shape, first row, rows. Costs one look at the counters while there are none;
        never a lock."""
    def cheapest_window(self, nbytes: int) -> tuple[int, int] | None:
        """(offset, nbytes) of a stretch that could be one free piece of `nbytes`: nothing in it is pending, retired or
        leased, and what has to leave it is as little as can be and has room outside."""
    def reserve_within(self, offset: int, nbytes: int) -> list[Reservation]:
        """What of it is free, at most 512 pieces; not to be written to."""
    def clients(self) -> list[dict[str, Any]]:
        """owner, pid, start_time_s, alive, leases, leased_bytes, pending_bytes, age_s."""
    def leases(self) -> list[dict[str, Any]]:
        """By client and block: owner, pid, start_time_s (of the process, since boot), alive, partition, block (a ref),
        rows, fields, nbytes, live_bytes (the share that rows still name), retired (no row names it), views (claims),
        age_s (of the oldest claim)."""
    def stats(self) -> dict[str, int]: ...
    def partition_stats(self) -> list[dict[str, Any]]: ...
    def check(self) -> None: ...  # the whole index against itself and the block table: CorruptSegmentError says what
    def write_lock_holds(self) -> list[tuple[int, int]]:
        """How long this process held the write lock: (nanoseconds, rounded up by at most 12.5 %; how often)."""

    # what all processes did since the session was made; kept in its memory, also after their death. Never raises.
    def counts(self) -> dict[str, int]: ...
    def latencies(self) -> dict[str, tuple[int, list[tuple[int, int]]]]:
        """name -> (sum in ns, [(all of the class took less than this in ns, how often)]); of the last class: 0."""
    def methods(self) -> list[dict[str, Any]]:
        """name, calls, failures, rows, get_ns, run_ns, put_ns, viewed_bytes, copied_bytes; by name."""
    def count_wait(self, seconds: float, *, for_room: bool, timed_out: bool) -> None: ...
    def count_sent(self, *, pulled: int = 0, served: int = 0) -> None: ...
    def count_method(
        self,
        method: str,
        *,
        rows: int,
        get_s: float,
        run_s: float,
        put_s: float,
        viewed_bytes: int,
        copied_bytes: int,
        failed: bool,
    ) -> None:
        """One call of a worker's method. Names over 120 bytes are cut; beyond 255 names, they count as "(other)"."""
    def census(self) -> list[dict[str, Any]]:
        """By partition: name; rows ready (have every field), partial, empty; consumed: task -> rows since its reset."""

def claim_clock() -> float: ...  # seconds on the clock of claims (CLOCK_BOOTTIME)
def set_claim_clock_ahead(ahead_s: float) -> None: ...  # tests only: of this process, from now on
def arm_pause(name: str, action: str, *, after: int = 0) -> None:
    """Tests only: after `after` passes: "kill", "freeze" (SIGSTOP), "stop" (until `resume`), "fail", "delay"."""

def resume(name: str) -> None: ...
def paused(name: str) -> bool:
    """A thread waits at that point now."""

def memcpy_seconds(destination_address: int, source_address: int, nbytes: int) -> float:
    """One single-thread memcpy, timed: the unit of every benchmark."""
