"""Brings the payload of located rows into the own node's store, once for all its processes, and resolves it there.

*Once*: who finds names missing locks them (`pull_lock`), looks again, and pulls what is still missing. So of several
processes that want the same rows one pulls, and the others find them: they are woken by its publication, not by the
lock. Correct without the lock, too: a name means the same bytes for ever, so a second copy is only a waste.

*Complete*: pulled rows are published in one transaction, then resolved with a lease like any. Between the two somebody
may evict them to make room; then they are missing again and are pulled again. What this process has brought it leases
while the rest comes, else room for one part would be made of another, again and again, and nobody would be told that
the store is full.

*Retired meanwhile*: a source that does not have a name any more says so (`GoneError`), and the caller locates the rows
anew: the home's index is the truth, names of a moment ago are not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np

from transferqueue.errors import DataLostError, StorageFullError, name_some
from transferqueue.nodes.described import Described, Positions, Request, alike
from transferqueue.nodes.errors import GoneError
from transferqueue.nodes.link import ANSWER_S
from transferqueue.nodes.located import Group
from transferqueue.nodes.payload import PayloadStore
from transferqueue.nodes.pull_block import PullBlock, PullPart
from transferqueue.nodes.pull_lock import pull_lock
from transferqueue.nodes.shared_looks import Turn
from transferqueue.nodes.wanted import Wanted, described_with, missing_of, requests_of

if TYPE_CHECKING:
    from transferqueue._native import Reservation, Resolved

T = TypeVar("T")
_TRIES = 4
_MOST_THREADS = 8
# Who waits is woken by what is published; this is for a lock whose holder failed or died.
_LOCK_LOOK_S = 0.05


class Sources(Protocol):
    """Other nodes as sources of payload, see `node_sources.NodeSources`."""

    def describe(self, request: Request, until_s: float | None) -> tuple[Request, Described]:
        """What the rows are, and the request that was answered, which may be of another node that has them, too."""
        ...

    def pull(self, request: Request, into: PullPart, until_s: float | None) -> None:
        """Their bytes, all of them."""


@dataclass
class Fetched:
    """Rows that are here now.

    Attributes:
        resolved: one for each group, leased, complete.
        pulled_nbytes: what came over the network for it.
        came: some of them came since they were first looked for, whoever brought them.
    """

    resolved: list[Resolved] = field(default_factory=list)
    pulled_nbytes: int = 0
    came: bool = False

    def release(self) -> None:
        """Drops the leases."""
        for resolved in self.resolved:
            resolved.release()
        self.resolved = []


class _Read(NamedTuple):
    """What one `fetch` is about."""

    partition: str
    home: int
    indexes: Positions
    until_s: float | None
    turn: Turn | None

    def is_on_its_way(self) -> None:
        """Its rows are, whoever brings them."""
        if self.turn is not None:
            self.turn.let_next()


class _HereError(Exception):
    """What was waited for has come."""


class Fetcher:
    """Of one process.

    Args:
        payload: of the own node.
        sources: how other nodes are asked.
        reserve: (nbytes, deadline) -> room in the own store.
        lock_path: the file of `pull_lock`.

    Attributes:
        brings: the last rows were not here yet, so that the next ones may have to be pulled, too.
    """

    def __init__(
        self,
        payload: PayloadStore,
        sources: Sources,
        reserve: Callable[[int, float | None], Reservation],
        lock_path: str,
    ) -> None:
        self._payload = payload
        self._sources = sources
        self._reserve = reserve
        self._lock_path = lock_path
        self.brings = True

    def fetch(
        self,
        partition: str,
        home: int,
        indexes: Positions,
        groups: Sequence[Group],
        until_s: float | None,
        turn: Turn | None = None,
    ) -> Fetched:
        """The groups' rows, resolved in the own store.

        Args:
            partition, home, indexes: see `Located`; rows of a group are those of `indexes`.
            turn: in which they were located, see `shared_looks`.

        Raises:
            GoneError: some are not where they were located: locate them anew.
            DataLostError: the node that has the only payload of some is lost. NodeUnreachableError: one that does not
                answer until the deadline. StorageFullError: no room here for a copy.
        """
        fetched = Fetched()
        read = _Read(partition, home, indexes, until_s, turn)
        try:
            wanted = self._look(groups, fetched)
            if turn is None or not turn.shared:
                self.brings = bool(wanted)
            if not wanted:
                return fetched
            names = np.concatenate([want.group.names[want.rows] for want in wanted])
            fetched.release()
            fetched.came = True
            with (
                contextlib.ExitStack() as held,
                pull_lock(self._lock_path, names, until_s, self._waiter(groups, fetched, read)),
            ):
                for _ in range(_TRIES):
                    wanted = self._look(groups, fetched)
                    if not wanted:
                        return fetched
                    for resolved in fetched.resolved:
                        held.callback(resolved.release)
                    for want in wanted:
                        fetched.pulled_nbytes += self._pull_all(read, want, held)
        except _HereError:
            return fetched
        except BaseException:
            fetched.release()
            raise
        raise GoneError(
            f"rows of partition {partition!r} were cleared again and again while they were copied to this node: its "
            "store is too small for what its processes read at once",
            partition_id=partition,
        )

    def _waiter(self, groups: Sequence[Group], fetched: Fetched, read: _Read) -> Callable[[float], None]:
        """Waits until whoever has the lock may be done. _HereError: everything is here, and nobody needs the lock."""

        def wait(longest_s: float) -> None:
            read.is_on_its_way()
            before = self._payload.change()
            if not self._look(groups, fetched):
                raise _HereError
            fetched.release()
            self._payload.wait_for_change(before, max(longest_s, _LOCK_LOOK_S))

        return wait

    def _look(self, groups: Sequence[Group], fetched: Fetched) -> list[Wanted]:
        """Resolves everything; what is missing."""
        fetched.resolved = []
        wanted: list[Wanted] = []
        for group in groups:
            resolved = self._payload.resolve(group.names, group.fields)
            fetched.resolved.append(resolved)
            if not resolved.complete:
                wanted.extend(missing_of(group, resolved))
        return wanted

    def _pull_all(self, read: _Read, want: Wanted, held: contextlib.ExitStack) -> int:
        """What is wanted, and what comes with it unless it is here: behind it, so that what is wanted lies as ever."""
        group = want.group
        missing = np.flatnonzero(~self._payload.have(group.more_names))
        if not len(missing):
            return self._pull(read, want, held)
        joined = replace(
            group,
            names=np.concatenate([group.names, group.more_names]),
            home_blocks=np.concatenate([group.home_blocks, group.more_blocks]),
            described=[],
        )
        more = Wanted(joined, want.fields, np.concatenate([want.rows, len(group.names) + missing]))
        try:
            indexes = np.concatenate([read.indexes, group.more_indexes])
            return self._pull(read._replace(indexes=indexes), more, held)
        except (DataLostError, GoneError, StorageFullError):
            return self._pull(read, want, held)  # nobody asked for the others

    def _pull(self, read: _Read, want: Wanted, held: contextlib.ExitStack) -> int:
        partition, _, indexes, until_s, _ = read
        requests = requests_of(read.partition, read.home, read.indexes, want)
        for request in requests:
            if request.ordinal == self._payload.ordinal:
                raise GoneError(
                    f"payload of partition {partition!r} that this node kept was cleared meanwhile",
                    rows=tuple(indexes[want.rows[request.positions]].tolist()[:8]),
                    partition_id=partition,
                )
        names = want.group.names[want.rows]
        name = partial(_naming_rows, partition, indexes[want.rows])
        described = described_with(requests, want)
        if described is None:
            answers = _in_parallel([partial(name, self._sources.describe, request, until_s) for request in requests])
            requests, described = [request for request, _ in answers], [found for _, found in answers]
        total = 0
        for some, fields in alike(requests, described, want.fields):
            positions = np.concatenate([request.positions for request, _ in some])
            ordered = np.sort(positions)
            block = PullBlock(fields)
            # It may be for another node, which has to hear in time that there is no room.
            reservation = self._reserve(block.nbytes, None if until_s is None else until_s - ANSWER_S)
            try:
                block.begin(reservation)
                calls = [
                    partial(
                        name,
                        self._sources.pull,
                        request,
                        block.part(np.searchsorted(ordered, request.positions)),
                        until_s,
                    )
                    for request, _ in some
                ]
                read.is_on_its_way()
                _in_parallel(calls)
                self._payload.publish_copies(names[ordered], reservation, block.end(), block.payload_nbytes)
            except BaseException:
                block.end()
                with contextlib.suppress(ValueError):  # the error came behind the publication
                    reservation.abandon()
                raise
            held.callback(self._payload.resolve(names[ordered], list(fields)).release)
            total += block.payload_nbytes
        return total


def _naming_rows(partition: str, indexes: Positions, ask: Callable[..., T], request: Request, *arguments: Any) -> T:
    """`ask`; that its rows are gone or lost is said by their global indexes."""
    try:
        return ask(request, *arguments)
    except GoneError as error:
        gone = np.isin(request.what.rows, np.array(error.rows, dtype=np.int64))
        rows = indexes[request.positions[gone]].tolist()
        raise GoneError(error.message, rows=tuple(rows), partition_id=partition) from error
    except DataLostError as error:
        rows = indexes[request.positions].tolist()
        raise DataLostError(
            f"rows of partition {partition!r} are lost: global indexes {name_some(rows)}. {error.message}",
            rows=tuple(rows),
            partition_id=partition,
            node=error.node,
        ) from error


def _in_parallel(calls: Sequence[Callable[[], T]]) -> list[T]:
    if len(calls) == 1:
        return [calls[0]()]
    with ThreadPoolExecutor(min(len(calls), _MOST_THREADS), thread_name_prefix="transferqueue-pull") as pool:
        jobs: list[Any] = [pool.submit(call) for call in calls]
        # All end before the block that they write to goes.
        errors = [error for job in jobs if (error := job.exception()) is not None]
        if errors:
            raise errors[0]
        return [job.result() for job in jobs]
