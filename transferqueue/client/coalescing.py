"""Rewriting scattered rows into one block, so that every later reader gets views."""

from __future__ import annotations

from collections.abc import Sequence

from transferqueue.aio import asynchronous
from transferqueue.allocation import give_up
from transferqueue.client.conditions import WaitCalls
from transferqueue.client.core import as_indexes, by_partition, check_batch_meta, check_names, check_only_node
from transferqueue.metadata import BatchMeta
from transferqueue.service.rewriting import Rewriting
from transferqueue.waiting import Steps, blocking, lock_timeout


class CoalesceCalls(WaitCalls):
    """Part of `TransferQueueClient`."""

    @blocking
    def coalesce(
        self,
        meta: BatchMeta,
        fields: str | Sequence[str] | None = None,
        *,
        node: int | None = None,
        timeout: float | None = None,
    ) -> Steps[BatchMeta]:
        """Rewrites the rows of `meta` into one block in its order; one copy, after which reads of it are views.

        A row that is put or cleared meanwhile keeps its new state: a cell is changed only if it still names what was
        copied. Fields whose rows were put with different types stay where they are.

        Args:
            meta: rows; one that is named twice (a pad) is moved once.
            fields: default: those that the metadata names.
            node: ordinal of the node that has the rows in one block afterwards: those that other nodes put come there
                as `prefetch` brings them, and are cache there. None: this one, of the rows that it has; they come
                from other nodes when they are read. The only node of a session of one machine is 0.
            timeout: seconds to wait for room (default ``put.timeout_s``).

        Returns:
            `meta`, which stays valid.

        Raises:
            StaleMetadataError, FieldNotReadyError: as in `get_data`. StorageFullError: no room for the copy.
            ValueError: there is no such node.
        """
        self._open()
        check_only_node(node)
        self._check_session(check_batch_meta(meta, "coalesce"))
        names = meta.field_names if fields is None else check_names(fields, "fields")
        until_s = self._put_deadline(timeout)
        for partition, indexes in by_partition(meta) if names else []:
            distinct = as_indexes(list(dict.fromkeys(indexes.tolist())))
            resolved = self._look(partition, distinct, names, raise_missing=True)
            assert resolved is not None  # narrowing: it raised
            try:
                rewriting = Rewriting(resolved, names)
                if rewriting.nbytes:
                    reservation = yield from self._reserve(rewriting.nbytes, timeout)
                    try:
                        rewriting.write(self._store, reservation, lock_timeout(until_s))
                    except BaseException:
                        give_up(reservation)
                        raise
            finally:
                resolved.release()
        return meta

    async_coalesce = asynchronous(coalesce)
