"""Reads of rows whose payload lies on other nodes: located at the home, brought here once a node, decoded as ever.

One snapshot: the home resolves all rows and fields at one moment, and a name means the same bytes for ever, so what is
fetched afterwards is what there was at that moment, whatever is put or cleared meanwhile. Payload that was cleared
between the two is located again.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from tensordict import TensorDict

from transferqueue.client.away_writes import AwayWriteCalls
from transferqueue.client.core import Indexes, as_indexes
from transferqueue.client.keyed import KeyedRead
from transferqueue.client.reads import HowToRead, ReadCost
from transferqueue.client.routed_calls import retitled
from transferqueue.client.row_choice import join_rows
from transferqueue.client.tries import Tries
from transferqueue.codec import STORED, Part, decode_parts
from transferqueue.errors import NodeUnreachableError, TransferTimeoutError
from transferqueue.nodes.errors import GoneError
from transferqueue.nodes.fetching import Fetched, Fetcher
from transferqueue.nodes.link import LOCATE
from transferqueue.nodes.located import Group, Located
from transferqueue.nodes.names import PAYLOAD, ordinals_of
from transferqueue.nodes.naming import groups_of, has_stubs
from transferqueue.nodes.shared_looks import DESCRIBE, SharedLooks, Turn
from transferqueue.waiting import Steps, away, deadline, is_over

if TYPE_CHECKING:
    from transferqueue._native import Resolved


class AwayReadCalls(AwayWriteCalls):
    """Part of `ClusterClient`."""

    _reads_elsewhere = True
    _fetcher: Fetcher
    _looks: SharedLooks

    def _read_rows(self, partition: str, indexes: Indexes, names: Sequence[str], how: HowToRead) -> Steps[TensorDict]:
        home = yield from self._home(partition, create=how[1] is not None)
        read = Read(*how)
        if home is None or self.link.is_here(home):
            started_s = time.perf_counter()
            resolved = yield from self._resolved_here(partition, indexes, names, read)
            if read.cost is not None:
                read.cost.looked(len(indexes), time.perf_counter() - started_s, waited=read.timeout is not None)
            return (yield from self._read_resolved(partition, resolved, names, read))
        asked = {"indexes": indexes, "fields": list(names)}
        batch = yield from self._read_away(partition, home, asked, read)
        assert batch is not None  # narrowing: rows by index are never left out
        return batch

    def _resolved_here(self, partition: str, indexes: Indexes, names: Sequence[str], read: Read) -> Steps[Resolved]:
        if read.timeout is not None:
            return (yield from self._awaited(partition, indexes, names, read.timeout, read.until_s))
        resolved = self._look(partition, indexes, names, raise_missing=True)
        assert resolved is not None  # narrowing: it raised
        return resolved

    def _read_keys(
        self, partition: str, keys: list[str], fields: list[str] | None, how: KeyedRead, read: HowToRead
    ) -> Steps[TensorDict]:
        home = yield from self._home(partition, create=how.timeout is not None)
        options = Read(*read)._replace(until_s=None if how.timeout is None else deadline(how.timeout))
        if home is None or self.link.is_here(home):
            found = yield from self._resolve_some(partition, keys, fields, how)
            if found is None:
                return TensorDict({}, batch_size=[0])
            return (yield from self._read_resolved(partition, *found, options))
        asked = {"keys": keys, "fields": fields, "missing": how.missing, "missing_fields": how.missing_fields}
        batch = yield from self._read_away(partition, home, asked, options)
        return TensorDict({}, batch_size=[0]) if batch is None else batch

    def _read_resolved(self, partition: str, resolved: Resolved, names: Sequence[str], how: Read) -> Steps[TensorDict]:
        """At the home: rows whose payload lies elsewhere, or was put by this node's processes, or both."""
        if not has_stubs(resolved):
            return self._decoded(partition, resolved, names, how.mode, how.layout, how.cost)
        tries = Tries(partition, self.link.until(how.until_s))
        indexes = as_indexes(resolved.indexes)
        while True:
            try:
                groups = groups_of(resolved, names, None)
            except BaseException:
                resolved.release()
                raise
            away_groups, mixed, own = split(groups)
            with released(resolved):
                try:
                    wanted = away_groups + [rows_of(group, group.names >= 0) for group in mixed]
                    fetched = yield from self._fetched(partition, self.link.ordinal, indexes, wanted, tries.until_s)
                except GoneError as error:
                    pause = tries.again(error)
                else:
                    with released(fetched):
                        return self._decode_home(partition, resolved, names, how, own, away_groups, mixed, fetched)
            yield from away(functools.partial(time.sleep, pause))
            found = self._look(partition, indexes, names, raise_missing=True)
            assert found is not None  # narrowing: it raised
            resolved = found

    def _decode_home(
        self,
        partition: str,
        resolved: Resolved,
        names: Sequence[str],
        how: Read,
        own: list[str],
        groups: list[Group],
        mixed: list[Group],
        fetched: Fetched,
    ) -> TensorDict:
        parts = [Part(resolved, own, self._config.unpickles_own)] if own else []
        parts += [self._part(group, found) for group, found in zip(groups, fetched.resolved, strict=False)]
        columns = [name for name in names if any(name in part.fields for part in parts)]
        batch = self._decode_parts(parts, columns, how) if columns else TensorDict({}, batch_size=[resolved.n_rows])
        for group, found in zip(mixed, fetched.resolved[len(groups) :], strict=True):
            here = np.flatnonzero(group.names < 0)
            there = np.flatnonzero(group.names >= 0)
            rows = as_indexes(resolved.indexes[here])
            # The same cells: the look that found them holds their blocks.
            local = self._store.resolve(partition, indexes=rows, fields=group.fields)
            if not local.complete or _blocks(local) - _blocks(resolved):
                local.release()
                raise GoneError("rows changed while they were read", partition_id=partition)
            with released(local):
                pieces = [
                    self._decode_parts([Part(local, group.fields, self._config.unpickles_own)], group.fields, how),
                    self._decode_parts([self._part(rows_of(group, group.names >= 0), found)], group.fields, how),
                ]
            order = np.empty(resolved.n_rows, dtype=np.int64)
            order[np.concatenate((here, there))] = np.arange(resolved.n_rows)
            batch.update(join_rows(pieces, order))
        return batch.select(*[name for name in names if name in batch.keys()]) if mixed else batch

    def _read_away(self, partition: str, home: int, asked: dict[str, Any], how: Read) -> Steps[TensorDict | None]:
        tries = Tries(partition, self.link.until(how.until_s))
        started_s = time.perf_counter()
        while True:
            with self._looks.turn() as turn:
                # What waits at the home has a deadline of its own.
                located = yield from self._located(partition, home, asked, how, turn if how.timeout is None else None)
                if located is None:
                    return None
                if how.cost is not None:
                    how.cost.looked(
                        len(located.indexes), time.perf_counter() - started_s, waited=how.timeout is not None
                    )
                try:
                    fetched = yield from self._fetched(
                        partition, located.home, located.indexes, located.groups, tries.until_s, turn
                    )
                except GoneError as error:
                    turn.over()
                    yield from away(functools.partial(time.sleep, tries.again(error)))
                    continue
                turn.over(woken=fetched.came)
            if how.cost is not None:
                how.cost.bytes_pulled += fetched.pulled_nbytes
            with released(fetched):
                parts = [
                    self._part(group, found) for group, found in zip(located.groups, fetched.resolved, strict=True)
                ]
                if not parts:
                    return TensorDict({}, batch_size=[len(located.indexes)])
                return self._decode_parts(parts, located.fields, how)

    def _fetched(
        self,
        partition: str,
        home: int,
        indexes: Indexes,
        groups: list[Group],
        until_s: float,
        turn: Turn | None = None,
    ) -> Steps[Fetched]:
        call = functools.partial(self._fetcher.fetch, partition, home, indexes, groups, until_s, turn)
        return (yield from self._here(away(call)))

    def _located(
        self, partition: str, home: int, asked: dict[str, Any], how: Read, turn: Turn | None = None
    ) -> Steps[Located | None]:
        """What the home answers; waits there, a slice at a time."""
        rows = len(asked["indexes"]) if "indexes" in asked else None
        while True:
            slice_s = None if how.timeout is None else self.link.wait_slice(how.until_s)
            args = {"partition": partition, **asked, "timeout": slice_s, "reader": self.link.ordinal}
            args[DESCRIBE] = self._fetcher.brings
            try:
                located: Located | None = yield from self._at_home(
                    partition, home, LOCATE, args, self.link.until(how.until_s), turn
                )
            except TransferTimeoutError as error:
                if isinstance(error, NodeUnreachableError) or is_over(how.until_s):
                    raise retitled(error, how.timeout) from None
                continue
            if located is not None:
                located.check(rows)
            return located

    def _part(self, group: Group, resolved: Resolved) -> Part:
        """What is to be decoded of a group; whatever another node wrote is not this node's own."""
        ours = not len(group.home_blocks) and bool((ordinals_of(group.names) == self.link.ordinal).all())
        return Part(resolved, group.fields, self._config.unpickles_own if ours else self._config.allow_pickle is True)

    def _decode_parts(self, parts: Sequence[Part], names: Sequence[str], how: Read) -> TensorDict:
        batch, viewed, copied = decode_parts(
            parts, names, mode=how.mode, copy_below=self._config.read.copy_below, layout=how.layout
        )
        for part in parts:
            part.resolved.finish()
            if copied and how.mode != "copy" and len(parts) == 1:
                self._service.note_gather(PAYLOAD, as_indexes(part.resolved.indexes), part.fields, copied)
        if how.cost is not None:
            how.cost.bytes_viewed += viewed
            how.cost.bytes_copied += copied
        return batch


class Read(NamedTuple):
    """`HowToRead` by names."""

    mode: str
    timeout: float | None
    until_s: float | None
    layout: str = STORED
    cost: ReadCost | None = None


@contextlib.contextmanager
def released(held: Any) -> Iterator[Any]:
    """Drops the leases at the end; views have their own."""
    try:
        yield held
    finally:
        held.release()


def split(groups: Sequence[Group]) -> tuple[list[Group], list[Group], list[str]]:
    """(all rows under names, some rows under names, fields whose rows all lie here as such)."""
    away_groups, mixed, own = [], [], []
    for group in groups:
        named = group.names >= 0
        if named.all():
            away_groups.append(group)
        elif named.any():
            mixed.append(group)
        else:
            own.extend(group.fields)
    return away_groups, mixed, own


def rows_of(group: Group, chosen: Any) -> Group:
    return Group(group.fields, group.names[chosen], group.copies)


def _blocks(resolved: Resolved) -> set[int]:
    return {resolved.block_id(block) for block in range(resolved.n_blocks)}


_ = is_over
