"""Rows brought to a node before anybody there reads them."""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from transferqueue.aio import asynchronous
from transferqueue.allocation import give_up
from transferqueue.client.away_reads import Read, released, rows_of, split
from transferqueue.client.away_streams import AwayStreamCalls
from transferqueue.client.core import Indexes, as_indexes, by_partition, check_batch_meta, check_names
from transferqueue.client.routed_calls import rows_only
from transferqueue.client.tries import Tries
from transferqueue.metadata import BatchMeta
from transferqueue.nodes.errors import GoneError
from transferqueue.nodes.located import Group, Located
from transferqueue.nodes.naming import groups_of, nodes_of
from transferqueue.service.rewriting import Rewriting
from transferqueue.waiting import Steps, away, blocking, deadline, run_steps

Ordinals = npt.NDArray[np.int64]


class PrefetchCalls(AwayStreamCalls):
    """Part of `ClusterClient`."""

    @blocking
    def prefetch(
        self,
        metadata: BatchMeta,
        fields: str | Sequence[str] | None = None,
        *,
        node: int | None = None,
        timeout: float | None = None,
    ) -> Steps[int]:
        """See `TransferQueueClient.prefetch`."""
        self._open()
        self._check_session(check_batch_meta(metadata, "prefetch"))
        names = metadata.field_names if fields is None else check_names(fields, "fields")
        return (yield from self._brought(metadata, names, node, timeout, together=False))

    def _gathered(self, metadata: BatchMeta, names: list[str], node: int, timeout: float | None) -> Steps[int]:
        return (yield from self._brought(metadata, names, node, timeout, together=True))

    def _brought(
        self, metadata: BatchMeta, names: list[str], node: int | None, timeout: float | None, *, together: bool
    ) -> Steps[int]:
        """Rows brought to a node; `together`: and into one block there, of each group of fields."""
        if node is not None and node != self.link.ordinal:
            nodes = yield from away(self.link.directory.nodes)
            if not any(place.ordinal == node for place in nodes):
                raise ValueError(f"there is no node {node!r} in this session")
            args = {"metadata": rows_only(metadata), "fields": names, "timeout": timeout, "together": together}
            until_s = None if timeout is None else deadline(timeout)
            ask = functools.partial(
                self.link.call, node, "payload.prefetch", args, until_s=self.link.until(until_s), attempt_s=30.0
            )
            nbytes: int = yield from away(ask)
            return nbytes
        how = Read("shared", timeout, deadline(timeout) if timeout is not None else None)
        total = 0
        for partition, indexes in by_partition(metadata) if names else ():
            total += yield from self._prefetched(partition, indexes, names, how, together=together)
        return total

    def _bring_here(self, metadata: BatchMeta, fields: Sequence[str], timeout: float | None, together: bool) -> int:
        """What the node's agent does for others: bytes that came over the network."""
        self._check_session(metadata)
        return run_steps(
            self._store, self._brought(metadata, check_names(fields, "fields"), None, timeout, together=together)
        )

    def _prefetched(
        self, partition: str, indexes: Indexes, names: Sequence[str], how: Read, *, together: bool
    ) -> Steps[int]:
        home = yield from self._home(partition, create=False)
        tries = Tries(partition, self.link.until(how.until_s))
        while True:
            if home is None or self.link.is_here(home):
                resolved = yield from self._resolved_here(partition, indexes, names, how)
                with released(resolved):
                    away_groups, mixed, _ = split(groups_of(resolved, names, None))
                wanted = away_groups + [rows_of(group, group.names >= 0) for group in mixed]
                located = Located(partition, self.link.ordinal, indexes, list(names), wanted)
            else:
                found = yield from self._located(partition, home, {"indexes": indexes, "fields": list(names)}, how)
                assert found is not None  # narrowing: rows by index are never left out
                located = found
            try:
                fetched = yield from self._fetched(
                    partition, located.home, located.indexes, located.groups, tries.until_s
                )
            except GoneError as error:
                yield from away(functools.partial(time.sleep, tries.again(error)))
                continue
            fetched.release()
            if together:
                yield from self._moved_together(located.groups)
            return fetched.pulled_nbytes

    def _coalesced_here(self, partition: str, home: int, indexes: Indexes, names: Sequence[str]) -> Steps[None]:
        """Brings together what this node keeps of the rows, whose stubs the home has brought together. Other nodes have
        them in one piece when they pull them."""
        how = Read("shared", None, None)
        located = yield from self._located(partition, home, {"indexes": indexes, "fields": list(names)}, how)
        yield from self._moved_together([] if located is None else located.groups)

    def _moved_together(self, groups: Sequence[Group]) -> Steps[None]:
        """What this node keeps of the rows, in their order, into one block for each group."""
        for group in groups:
            # A row that is named twice (a pad) is moved once.
            _, first = np.unique(group.names, return_index=True)
            resolved = self._payload.resolve(np.ascontiguousarray(group.names[np.sort(first)]), group.fields)
            with released(resolved):
                rewriting = Rewriting(resolved, group.fields) if resolved.complete else None
                if rewriting is None or not rewriting.nbytes:
                    continue
                reservation = yield from self._reserve(rewriting.nbytes, None)
                try:
                    rewriting.write(self._store, reservation)
                except BaseException:
                    give_up(reservation)
                    raise

    @blocking
    def row_nodes(self, metadata: BatchMeta, fields: str | Sequence[str] | None = None) -> Steps[Ordinals]:
        """See `TransferQueueClient.row_nodes`."""
        self._open()
        self._check_session(check_batch_meta(metadata, "row_nodes"))
        names = metadata.field_names if fields is None else check_names(fields, "fields")
        found = np.full(metadata.size, -1, dtype=np.int64)
        for piece in metadata.chunk_by_partition() if metadata.size and names else ():
            partition, indexes = piece.partition_names[0], as_indexes(piece.index_array)
            home = yield from self._home(partition, create=False)
            if home is None:
                continue
            if self.link.is_here(home):
                with released(self._store.resolve(partition, indexes=indexes, fields=list(names))) as resolved:
                    answer = nodes_of(resolved, self.link.ordinal)
            else:
                args = {"partition": partition, "indexes": indexes, "fields": list(names)}
                answer = yield from self._at_home(partition, home, "rows.nodes", args, self.link.until(None))
            mine = np.array([name == partition for name in metadata.partition_ids], dtype=np.bool_)
            found[mine] = answer
        return found

    @blocking
    def node_ordinals(self) -> Steps[dict[str, int]]:
        """See `TransferQueueClient.node_ordinals`."""
        self._open()
        nodes = yield from away(self.link.directory.nodes)
        return {node.node_id: node.ordinal for node in nodes if node.alive}

    async_row_nodes: Any = asynchronous(row_nodes)
    async_node_ordinals: Any = asynchronous(node_ordinals)
    async_prefetch: Any = asynchronous(prefetch)
