"""One process's attachment to a session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from transferqueue._native.blocks import FieldLayout, Reservation, Resolved
from transferqueue._native.tables import (
    Indexes,
    PublishResult,
    RequestRecord,
    RowListing,
    SavedSession,
    SessionSnapshot,
    TaskSnapshot,
)

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
        elsewhere_nbytes: int | None = None,
        lock_timeout_s: float | None = None,
    ) -> PublishResult:
        """One transaction. indexes: those rows (StaleMetadataError when one is gone); keys: the rows of the keys, made
        when missing; neither: `count` new rows. Makes producer mappings private first.
        create_rows: of `indexes`, those that do not exist are made with exactly that index; also without a reservation
        (bare rows). ValueError for an index that the session is yet to give out itself: from the next one up to
        first_row + 2**49. The rest of [first_row, first_row + 2**50) and what lies outside of it is never given out. A
        row that was cleared and is made again is the sample that it was: marks and claims of tasks on it stand. With
        `keys`, one a row, all rows and keys must be new.
        elsewhere_nbytes: the block holds names of payload of that size on other nodes. It is what the partition holds
        by it, for its limits and `partition_stats`; what the session holds is the block itself."""
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
    def held_by(self, resolved: Resolved) -> Indexes:
        """int64 [blocks, 2]: what the partition holds by each block now, in bytes, and by how many cells; 0 where the
        block is gone."""
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
    def cheapest_run(self, nbytes: int, most_moved: int) -> tuple[int, int] | None:
        """(offset, nbytes) of a stretch of which `nbytes` are free, in pieces: nothing in it is pending, retired or
        leased, and what lives in it is as little as can be, at most `most_moved` bytes."""
    def reserve_from(self, offset: int, nbytes: int) -> Reservation | None:
        """At the first place from `offset` on where a block of that size can begin; None where that is not free."""
    def reserve_within(self, offset: int, nbytes: int) -> list[Reservation]:
        """What of it is free, at most 512 pieces; not to be written to."""
    def clients(self) -> list[dict[str, Any]]:
        """owner, pid, start_time_s, alive, leases, leased_bytes, pending_bytes, age_s."""
    def leases(self) -> list[dict[str, Any]]:
        """By client and block: owner, pid, start_time_s (of the process, since boot), alive, partition, block (a ref),
        rows, fields, nbytes, live_bytes (the share that rows still name), retired (no row names it), views (claims),
        age_s (of the oldest claim)."""
    def stats(self) -> dict[str, int]: ...
    def partition_stats(self) -> list[dict[str, Any]]:
        """name, rows, live_bytes (of payload that its rows name, on other nodes too), keyed_rows."""
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
