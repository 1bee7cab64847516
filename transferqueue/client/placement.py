"""Where rows and partitions are. On one machine there is one place; see `ClusterClient` for several."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from transferqueue.aio import asynchronous
from transferqueue.client.core import by_partition, check_batch_meta, check_names, check_only_node, check_partition
from transferqueue.client.typed_reads import TypedReadCalls
from transferqueue.metadata import BatchMeta
from transferqueue.waiting import Steps, blocking, deadline


class PlacementCalls(TypedReadCalls):
    """Part of `TransferQueueClient`."""

    def place_partition(self, partition_id: str, node: int | None = None) -> int:
        """Chooses the node whose index the partition's rows stand in, before anybody uses the partition.

        Args:
            partition_id: a new name.
            node: ordinal of a node; None: this one. The only node of a session of one machine is 0.

        Returns:
            The ordinal of its home: another one than `node` where somebody was faster.

        Raises:
            ValueError: there is no such node.
        """
        self._open()
        check_partition(partition_id)
        check_only_node(node)
        return 0

    @blocking
    def prefetch(
        self,
        metadata: BatchMeta,
        fields: str | Sequence[str] | None = None,
        *,
        node: int | None = None,
        timeout: float | None = None,
    ) -> Steps[int]:
        """Brings the rows of `metadata` to a node, so that the reads of all its processes find them there. In a session
        of one machine all rows are there, and this only waits for them.

        What is brought is a copy that goes first when a put finds no room.

        Args:
            metadata, fields, timeout: as in `get_data`.
            node: ordinal of the node; None: this one. A controller may have rows brought to where they will be used
                while it is busy otherwise.

        Returns:
            bytes that came over the network.

        Raises:
            as `get_data`. ValueError: there is no such node.
        """
        self._open()
        check_only_node(node)
        self._check_session(check_batch_meta(metadata, "prefetch"))
        names = metadata.field_names if fields is None else check_names(fields, "fields")
        until_s = None if timeout is None else deadline(timeout)
        for partition, indexes in by_partition(metadata) if names else ():
            if timeout is None:
                resolved = self._look(partition, indexes, names, raise_missing=True)
                assert resolved is not None  # narrowing: it raised
            else:
                resolved = yield from self._awaited(partition, indexes, names, timeout, until_s)
            resolved.release()
        return 0

    def row_nodes(self, metadata: BatchMeta, fields: str | Sequence[str] | None = None) -> npt.NDArray[np.int64]:
        """Which node keeps each row: the one that put it, whether or not others have copies. One round trip for all
        rows that have one home. For a controller that has the choice where rows are read; `node_ordinals` says which
        node is which.

        Args:
            metadata: rows.
            fields: which are meant; default: those that the metadata names. Of a row whose fields are on several nodes
                it is the node that has most of them, of these the one with the lowest ordinal.

        Returns:
            int64 [rows], ordinals; -1 of rows that have none of the fields, or are gone.
        """
        self._open()
        self._check_session(check_batch_meta(metadata, "row_nodes"))
        return np.zeros(metadata.size, dtype=np.int64)

    def node_ordinals(self) -> dict[str, int]:
        """Id of each node that is here (Ray's; without Ray the name of the machine) -> its ordinal. Empty in a session
        of one machine."""
        self._open()
        return {}

    async_row_nodes = asynchronous(row_nodes)
    async_node_ordinals = asynchronous(node_ordinals)
    async_place_partition = asynchronous(place_partition)
    async_prefetch = asynchronous(prefetch)
