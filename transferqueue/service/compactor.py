"""Empties blocks of which little lives: their rows move, together with others of the same kind, into new blocks.

A block is freed whole, when its last cell went. Where rows are cleared in an order of their own, one row in a thousand
would keep all the others' bytes, so what still lives of a sparse block is copied elsewhere. Copying costs; the two
thresholds bound it. Emptying a block of which the share s lives copies s / (1 - s) bytes for each byte it frees, and a
byte that was put dies once: with 1/4, the service copies at most a third of what is put, and what lives is at least a
quarter of what is used. A put that would otherwise wait or fail goes further, to 3/4. See
docs/decisions/019-compaction.md.

Blocks in the spill file are treated alike: what lives of them is written together there.

Published by compare-and-set, a bounded step at a time. One process at a time, by a lock of the session; who dies
holding it leaves a pending extent and nothing else. Two at once would be harmless and copy in vain, so nobody waits
for one that was stopped.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from transferqueue.errors import TransferTimeoutError
from transferqueue.logs import get_logger
from transferqueue.service.joining import Joining
from transferqueue.service.moving import STEP_NBYTES, Mover
from transferqueue.service.sparse_plan import Batch, Indexes, SparsePlan

if TYPE_CHECKING:
    from transferqueue._native import Store

_log = get_logger("service")
# Moved in one transaction; see the decision for its hold.
STEP_ROWS = 512
# A put that found no room empties what lives to less than this. It copies 3 bytes for each that it frees, at worst.
URGENT_BELOW = 0.75
# What the service lets lie: not worth the transactions.
SLACK_NBYTES = 4 << 20
_SLACK_SHARE = 16
# Where less than this share of the store is free, it does not wait whether a block empties by itself.
_SCARCE_SHARE = 8
_LOOK_S = 2.0
_LONGEST_LOOK_S = 16.0
# A put gives up after so many portions for which it found no place at all.
_HOPELESS_AFTER = 4


class Compactor:
    """Of one process; the service's, or a client's that finds no room.

    Args:
        below: the service empties blocks of which less than this share lives; 0: none.
        spilled: of blocks in the spill file instead of those in memory.
    """

    # Whose standing still was reported last, by this process.
    _stopped_pid: ClassVar[int | None] = None

    def __init__(self, store: Store, below: float = 0.0, *, spilled: bool = False) -> None:
        self._store = store
        self._spilled = spilled
        self._mover = Mover(store, spilled=spilled)
        self._prefix = "spill_" if spilled else ""  # of the figures in `Store.stats`
        self._below = below
        self._plan: SparsePlan | None = None
        self._portions: Iterator[Indexes] = iter(())
        self._after = 0
        # Live bytes by block: of the last look over all of them, and of the present one.
        self._seen: dict[int, int] = {}
        self._seeing: dict[int, int] = {}
        self._next_look_s = 0.0
        self._look_s = _LOOK_S
        self.scarce = False

    def tick(self) -> bool:
        """One step of the service's, if one is due. Whether more is to be done now.

        Raises:
            StorageFullError: the index is full. What the store raises when it was closed or ended.
        """
        if self._below <= 0:
            return False
        if self._plan is None and not self._look():
            return False
        with self._alone() as mine:
            if not mine:
                return False  # a put is at it
            plan, portion = self._plan, next(self._portions, None)
            if plan is None or portion is None:
                self._plan = None
                return self._after != 0
            self._empty(plan, portion)
        return True

    def rounds(self, wanted_nbytes: int) -> Iterator[None]:
        """For a put that found no room for so many bytes: stops after each step that may have made some, to let it try.

        Ends when nothing is left to gain, when all that there is would not be enough, or when another process is at it.
        Last, where there is room enough in pieces too small, joins some of them.
        """
        after, hopeless = 0, 0
        while hopeless < _HOPELESS_AFTER:
            plan = SparsePlan(self._store, after, spilled=self._spilled)
            blocks = plan.sparse(URGENT_BELOW)
            if plan.next or self._free_nbytes() + plan.gain_nbytes(blocks) >= wanted_nbytes:
                # In small steps: until the first block is empty there may be no room but the headroom.
                for portion in self._steps(plan, blocks, min(STEP_NBYTES, max(wanted_nbytes, 1 << 20))):
                    with self._alone() as mine:
                        if not mine:
                            return
                        hopeless = 0 if self._empty(plan, portion) else hopeless + 1
                    if hopeless >= _HOPELESS_AFTER:
                        break
                    yield
            after = plan.next
            if not after:
                break
        if self._spilled:
            return
        joining = Joining(self._store, self._mover)
        for join in (joining.window, joining.slide):
            if self._free_nbytes() >= wanted_nbytes:
                with self._alone() as mine:
                    if not mine:
                        return
                    joined = join(wanted_nbytes)
                if joined:
                    yield

    def _look(self) -> bool:
        """Chooses what the next ticks empty; False when nothing is to be done, or no look is due."""
        now_s = time.monotonic()
        if now_s < self._next_look_s:
            return False
        plan = SparsePlan(self._store, self._after, spilled=self._spilled)
        self._after = plan.next
        blocks = plan.sparse(self._below)
        slack = 0
        if len(blocks):
            figures = self._store.stats()
            total = figures[f"{self._prefix}total_bytes"]
            self.scarce = figures[f"{self._prefix}free_bytes"] * _SCARCE_SHARE < total
            slack = 0 if self.scarce else min(SLACK_NBYTES, total // _SLACK_SHARE)
            if not self.scarce:
                # Rows that are being cleared one after the other are not moved first: a block is left alone until
                # nothing of it went between two looks.
                self._seeing |= zip(plan.refs.tolist(), plan.live_nbytes.tolist(), strict=True)
                still = [self._seen.get(int(plan.refs[at])) == int(plan.live_nbytes[at]) for at in blocks.tolist()]
                blocks = blocks[still]
        else:
            self.scarce = False
        if not self._after:
            self._seen, self._seeing = self._seeing, {}
        found = len(blocks) > 0 and (plan.gain_nbytes(blocks) >= slack or bool(plan.headroom[blocks].any()))
        self._look_s = _LOOK_S if found or self._seen else min(2 * self._look_s, _LONGEST_LOOK_S)
        self._next_look_s = 0.0 if self._after else now_s + self._look_s
        if not found:
            return False
        self._plan, self._portions = plan, self._steps(plan, blocks, STEP_NBYTES)
        return True

    def _steps(self, plan: SparsePlan, blocks: Indexes, live_nbytes: int) -> Iterator[Indexes]:
        if self._spilled:
            # What is emptied first of a full disk goes by way of the headroom, which holds the rows of one block.
            yield from plan.portions(blocks[:1], 1)
            blocks = blocks[1:]
        yield from plan.portions(blocks, live_nbytes)

    def _empty(self, plan: SparsePlan, blocks: Indexes) -> bool:
        """False when some of it found no room."""
        done = True
        for batch in plan.batches(blocks):
            for begin in range(0, len(batch.rows), STEP_ROWS):
                rows = batch.rows[begin : begin + STEP_ROWS]
                done = self._mover.move(Batch(batch.partition, batch.fields, rows)) and done
        return done

    def _free_nbytes(self) -> int:
        return self._store.stats()[f"{self._prefix}free_bytes"]

    @contextlib.contextmanager
    def _alone(self) -> Iterator[bool]:
        """Whether no other process compacts, stopped ones apart; it holds while the block runs. No partition has the
        empty name."""
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(self._store.lock_task("", "compaction", 0.0))
            except TransferTimeoutError as error:
                if not _is_stopped(error.holder_pid):
                    yield False
                    return
                if error.holder_pid != Compactor._stopped_pid:
                    Compactor._stopped_pid = error.holder_pid
                    _log.warning("%s; compaction goes on beside it", error)
            yield True


def _is_stopped(pid: int | None) -> bool:
    """By a signal or a debugger; not if it cannot be told."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[:1] in (["T"], ["t"])
