"""Frees payload that nobody names any more: told by the home (*release*), found by the node that keeps it (*sweep*).

*Release.* Rows are cleared and overwritten at the home by any of its processes. The agent there compares, for each
partition that changed, what is named now with what was named before, and tells the nodes whose names are gone. A name
that a home has named and does not name any more is never named again: its put was applied once.

*Sweep.* Names that no home ever named are of puts that failed, died, or are not done: the node that keeps them asks
all homes, `GRACE_S` after it first saw them, and spares those of puts that say that they are under way (`InFlight`).
Names that a home did name are asked for again now and then, since that home's agent may have been started anew between
the change and its look. While any node does not answer, nothing is cleared that might be its.

*Copies* go when the node whose they are has no such name any more: the home tells those nodes that read its rows when
it notices, and each looks for itself now and then.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from transferqueue.errors import ClosedError, DataLostError, SessionNotFoundError, TransferQueueError
from transferqueue.logs import get_logger
from transferqueue.node_service.discards import Discards
from transferqueue.node_service.references import References
from transferqueue.nodes.link import NodeLink
from transferqueue.nodes.names import MOST_NODES, Mask, Names, ordinals_of
from transferqueue.nodes.payload import GRACE_S, PayloadStore

if TYPE_CHECKING:
    from transferqueue.node_service.block_names import BlockNames
    from transferqueue.node_service.remote_claims import RemoteClaims
    from transferqueue.node_service.replication import Replication

_log = get_logger("nodes")
RELEASE_S = 0.1
SWEEP_S = 2.0
COPIES_S = 5.0
CLAIMS_S = 1.0
CONFIRM_AGAIN_S = 30.0
KEEP_FOR_LOST_S = 600.0
_CALL_S = 2.0
_TELL_S = 0.5
_NONE: Names = np.empty(0, dtype=np.int64)


class Upkeep:
    """Of one agent; `release`, `sweep` and `sweep_copies` are called by its thread, and by tests.

    Attributes:
        discards: what goes, unless it has to wait for a checkpoint.
        grace_s: how long names that no home knows are spared.
        keep_for_lost_s: how long payload that only a lost node's partitions can name is kept, in case it comes back.
    """

    def __init__(
        self,
        payload: PayloadStore,
        references: References,
        block_names: BlockNames,
        claims: RemoteClaims,
        link: NodeLink,
        replication: Replication | None = None,
    ) -> None:
        self._replication = replication
        self._payload = payload
        self.discards = Discards(payload)
        self._references = references
        self._block_names = block_names
        self._claims = claims
        self._link = link
        self._guard = threading.Lock()
        self._told: dict[str, list[Names]] = {}
        self._named: dict[str, tuple[int, Names]] = {}  # partition -> (version, names that it was seen to name)
        self._to_release: dict[int, list[Names]] = {}
        self.grace_s = GRACE_S
        self.keep_for_lost_s = KEEP_FOR_LOST_S
        self._lost_since: dict[int, float] = {}
        self._seen: Names = _NONE
        self._readers: set[int] = set()
        self._young: list[tuple[float, Names]] = []
        self._suspects: Names = _NONE
        self._confirmed: Names = _NONE
        self._confirm_s = time.monotonic() + CONFIRM_AGAIN_S
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def tell(self, partition: str, names: Names) -> None:
        """A put of another node was applied: the partition names these, and may not any more at the next look."""
        with self._guard:
            self._told.setdefault(partition, []).append(names)

    def note_reader(self, ordinal: int) -> None:
        """That node has located rows here, so it may have copies."""
        if ordinal != self._link.ordinal and 0 <= ordinal < MOST_NODES:
            self._readers.add(ordinal)

    def start(self) -> None:
        """Starts the thread."""
        self._thread = threading.Thread(target=self._run, name="transferqueue-upkeep", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread. Idempotent."""
        self._stopping.set()
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            # It may be asking nodes that end at this moment, too. What it does next fails, quietly.
            thread.join(2 * _CALL_S)

    def release(self) -> None:
        """Tells other nodes which of their names are not named here any more."""
        with self._guard:
            told, self._told = self._told, {}
        # Before the look: a block that had a name by then and is not found is gone for good.
        named_blocks = self._block_names.blocks()
        gone: list[Names] = []
        # What was told was committed before: a look from here on sees it, or that it went.
        now = self._references.all()
        for partition in now.keys() | self._named.keys() | told.keys():
            seen = now.get(partition)
            version = -1 if seen is None else seen.version
            before = self._named.get(partition)
            if before is not None and seen is not None and before[0] == version and partition not in told:
                continue
            if self._replication is not None and not self._replication.is_settled(partition):
                # What was done is not yet what holds, or never will be: another node may be the home.
                if self._replication.is_mine(partition):
                    with self._guard:
                        self._told.setdefault(partition, []).extend(told.get(partition, []))
                else:
                    self._named.pop(partition, None)
                continue
            known = np.concatenate([_NONE if before is None else before[1], *told.get(partition, [])])
            named = _NONE if seen is None else seen.names
            dropped = np.setdiff1d(known, named)
            self._note_dropped(dropped, partition)
            gone.append(dropped)
            if seen is None:
                self._named.pop(partition, None)
            else:
                self._named[partition] = version, named
        if named_blocks:
            there: frozenset[int] = frozenset().union(*(seen.blocks for seen in now.values()))
            gone.append(self._block_names.forget(named_blocks - there))
        self._tell_readers(np.concatenate([_NONE, *gone]))
        for ordinal in list(self._to_release):
            if self._stopping.is_set():
                return
            self._send(ordinal)

    def sweep(self) -> None:
        """Clears names of this node that no home names."""
        if self.discards.held:
            return
        now_s = time.monotonic()
        own, _ = self._payload.split(self._payload.all_names())
        new = np.setdiff1d(own, self._seen)
        self._seen = own
        if len(new):
            self._young.append((now_s, new))
        due = [names for first_s, names in self._young if now_s - first_s >= self.grace_s]
        again = now_s >= self._confirm_s
        asked = np.intersect1d(np.concatenate([self._confirmed if again else _NONE, *due]), own)
        named = self._named_anywhere(asked, of_lost=True) if len(asked) else np.zeros(0, dtype=np.bool_)
        if named is None:
            return  # somebody who may name them did not answer: at the next sweep
        self._young = [entry for entry in self._young if now_s - entry[0] < self.grace_s]
        if again:
            self._confirm_s = now_s + CONFIRM_AGAIN_S
            self._confirmed = _NONE
        self._confirmed = np.union1d(np.intersect1d(self._confirmed, own), asked[named])
        orphans = asked[~named]
        under_way = self._payload.in_flight(orphans) if len(orphans) else named[~named]
        # Twice, at two sweeps: an agent that stood still answers, when it goes on, before it does what it was asked.
        suspects = orphans[~under_way]
        cleared = np.intersect1d(suspects, self._suspects)
        self._suspects = np.setdiff1d(suspects, cleared)
        spared = np.union1d(orphans[under_way], self._suspects)
        if len(spared):
            self._young.append((now_s - self.grace_s, spared))
        if len(cleared):
            self.discards.discard(cleared)
            _log.info("cleared %d rows of payload that no partition names", len(cleared))

    def sweep_copies(self) -> None:
        """Clears copies of what their node does not have any more."""
        if self.discards.held:
            return
        _, copies = self._payload.split(self._payload.all_names())
        if self._replication is not None:
            copies = copies[self._replication.keeper.lacks(copies)]  # what is kept is no cache
        ordinals = ordinals_of(copies)
        for ordinal in np.unique(ordinals).tolist():
            names = copies[ordinals == ordinal]
            alive = self._ask(ordinal, "payload.alive", names)
            if alive is None and self._is_lost(ordinal):
                # It may be the only copy: it stays while any home names it.
                alive = self._named_anywhere(names)
            if alive is not None:
                self._payload.discard(names[~alive])

    def _note_dropped(self, names: Names, partition: str) -> None:
        if self._replication is not None and len(names):
            self._replication.keeper.forget(names)
            self.discards.discard(names[ordinals_of(names) != self._link.ordinal])
            standby = self._replication.homes().get(partition)
            if standby is not None:
                self._to_release.setdefault(standby, []).append(names)
        ordinals = ordinals_of(names)
        for ordinal in np.unique(ordinals).tolist():
            self._to_release.setdefault(ordinal, []).append(names[ordinals == ordinal])

    def _tell_readers(self, names: Names) -> None:
        """Copies of what is gone make room for the next ones, while it is warm. Who is not reached sweeps by itself."""
        for ordinal in list(self._readers) if len(names) else ():
            if self._stopping.is_set():
                return
            try:
                self._link.call(ordinal, "payload.release", {"names": names}, until_s=time.monotonic() + _TELL_S)
            except TransferQueueError as error:
                self._readers.discard(ordinal)  # until it reads again
                _log.debug("node %d is not told which copies are of no use any more: %s", ordinal, error)

    def _send(self, ordinal: int) -> None:
        names = np.concatenate(self._to_release[ordinal])
        try:
            if ordinal == self._link.ordinal:
                self.discards.discard(names)  # its own; of others it has forgotten
            else:
                until_s = time.monotonic() + _CALL_S
                self._link.call(ordinal, "payload.release", {"names": names}, until_s=until_s)
        except DataLostError:
            pass  # the names went with their node
        except TransferQueueError as error:
            self._to_release[ordinal] = [names]
            _log.debug("node %d is not told yet what it may free: %s", ordinal, error)
            return
        del self._to_release[ordinal]

    def _named_anywhere(self, names: Names, *, of_lost: bool = False) -> Mask | None:
        """bool [names]; None: a node that may name some did not answer.

        Args:
            of_lost: so is a node that is lost, for a while: it may have been cut off, and come back with its rows.
        """
        named = self._references.named(names)
        now_s = time.monotonic()
        for node in self._link.directory.nodes(until_s=now_s + _CALL_S):
            if node.ordinal == self._link.ordinal:
                continue
            if not node.alive:
                lost_s = self._lost_since.setdefault(node.ordinal, now_s)
                if of_lost and now_s - lost_s < self.keep_for_lost_s:
                    return None
                continue
            self._lost_since.pop(node.ordinal, None)
            answer = self._ask(node.ordinal, "names.named", names)
            if answer is None:
                if self._is_lost(node.ordinal) and not of_lost:
                    continue
                return None
            named |= answer
        return named

    def _ask(self, ordinal: int, method: str, names: Names) -> Mask | None:
        try:
            answer = self._link.call(ordinal, method, {"names": names}, until_s=time.monotonic() + _CALL_S)
        except TransferQueueError as error:
            _log.debug("node %d was not asked %s: %s", ordinal, method, error)
            return None
        mask = np.asarray(answer, dtype=np.bool_)
        return mask if len(mask) == len(names) else None

    def _is_lost(self, ordinal: int) -> bool:
        try:
            return self._link.directory.is_lost(ordinal, until_s=time.monotonic() + _CALL_S)
        except TransferQueueError:
            return False

    def _run(self) -> None:
        began_s = time.monotonic()
        steps = [
            (self.release, RELEASE_S),
            (self.sweep, SWEEP_S),
            (self.sweep_copies, COPIES_S),
            (self._claims.give_back_of_the_dead, CLAIMS_S),
        ]
        if self._replication is not None:
            steps.append((self._replication.keeper.sweep, SWEEP_S))
        due = [_Due(began_s + every_s, every_s, step) for step, every_s in steps]
        while not self._stopping.wait(RELEASE_S):
            for entry in due:
                if time.monotonic() < entry.next_s or self._stopping.is_set():
                    continue
                began_s = time.monotonic()
                try:
                    entry.step()
                except (SessionNotFoundError, ClosedError):
                    return
                except (TransferQueueError, OSError, MemoryError) as error:
                    _log.warning("freeing payload of the cluster is tried again: %s", error)
                # Looks at large partitions take their time: a tenth of it at most.
                now_s = time.monotonic()
                entry.next_s = now_s + max(entry.every_s, 10 * (now_s - began_s))


@dataclass
class _Due:
    next_s: float
    every_s: float
    step: Callable[[], None]
