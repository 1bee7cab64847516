"""Rows brought to a node before anybody there reads them."""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from transferqueue.aio import asynchronous
from transferqueue.allocation import give_up
from transferqueue.client.away_reads import Read, Tries, released, rows_of, split
from transferqueue.client.away_streams import AwayStreamCalls
from transferqueue.client.core import Indexes, by_partition, check_batch_meta, check_names
from transferqueue.client.routed_calls import rows_only
from transferqueue.metadata import BatchMeta
from transferqueue.nodes.errors import GoneError
from transferqueue.nodes.located import Located
from transferqueue.nodes.naming import groups_of
from transferqueue.service.rewriting import Rewriting
from transferqueue.waiting import Steps, away, blocking, deadline


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
        if node is not None and node != self.link.ordinal:
            args = {"metadata": rows_only(metadata), "fields": names, "timeout": timeout}
            until_s = None if timeout is None else deadline(timeout)
            ask = functools.partial(
                self.link.call, node, "payload.prefetch", args, until_s=self.link.until(until_s), attempt_s=30.0
            )
            nbytes: int = yield from away(ask)
            return nbytes
        how = Read("shared", timeout, deadline(timeout) if timeout is not None else None)
        total = 0
        for partition, indexes in by_partition(metadata) if names else ():
            total += yield from self._prefetched(partition, indexes, names, how)
        return total

    def _prefetched(self, partition: str, indexes: Indexes, names: Sequence[str], how: Read) -> Steps[int]:
        home = yield from self._home(partition, create=False)
        tries = Tries(partition, self.link.until(how.until_s))
        while True:
            if home is None or home == self.link.ordinal:
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
            return fetched.pulled_nbytes

    def _coalesced_here(self, partition: str, home: int, indexes: Indexes, names: Sequence[str]) -> Steps[None]:
        """Brings together what this node keeps of the rows, whose stubs the home has brought together. Other nodes have
        them in one piece when they pull them."""
        how = Read("shared", None, None)
        located = yield from self._located(partition, home, {"indexes": indexes, "fields": list(names)}, how)
        for group in () if located is None else located.groups:
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

    async_prefetch: Any = asynchronous(prefetch)
