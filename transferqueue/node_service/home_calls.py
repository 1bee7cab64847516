"""What all calls that a partition's home answers have in common."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from transferqueue._native import AlreadyApplied
from transferqueue.client.node_client import NodeClient
from transferqueue.nodes.errors import NotHomeError
from transferqueue.nodes.link import NodeLink
from transferqueue.nodes.rpc_server import Call

if TYPE_CHECKING:
    from transferqueue._native import RequestRecord, Store
    from transferqueue.node_service.replication import Replication

T = TypeVar("T")
_LONGEST_S = 60.0
_LEAST_S = 0.5


class HomeCalls:
    """Part of `HomeService`.

    Attributes:
        client: of the node's own store.
    """

    def __init__(
        self, store: Store, client: NodeClient, link: NodeLink, replication: Replication | None = None
    ) -> None:
        self._store = store
        self._replication = replication
        if replication is not None:
            self._store = client._store = replication.as_store
        self._link = link
        self.client = client

    def _at_home(self, call: Call) -> str:
        """The partition of the call, whose home this node must be."""
        partition = call.args["partition"]
        if self._replication is not None:
            self._replication.at_home(partition)
            return str(partition)
        if not self._link.is_home(partition):
            self._link.forget_home(partition)
            if not self._link.is_home(partition):
                raise NotHomeError(
                    f"node {self._link.ordinal} is not the home of partition {partition!r}",
                    partition_id=partition,
                    ordinal=self._link.ordinal,
                )
        return str(partition)

    def _once(self, call: Call, do: Callable[[], T], again: Callable[[RequestRecord], T]) -> T:
        """`do`, whose first change is recorded under the call's number in the same commit. A call that was made before,
        to this agent or to one that died since, changes nothing: `again` makes its answer from the record."""
        replication, partition = self._replication, call.args.get("partition")
        if replication is None or partition is None:
            return self._once_here(call, do, again)
        with replication.store.working_on(call.request_id, call.args.get("names")):
            answer = self._once_here(call, do, again)
        replication.flush(partition, until_of(call))
        return answer

    def _once_here(self, call: Call, do: Callable[[], T], again: Callable[[RequestRecord], T]) -> T:
        done = self._store.find_request(call.request_id)
        if done is None:
            try:
                with self._store.request(call.request_id):
                    return do()
            except AlreadyApplied:
                done = self._store.find_request(call.request_id)
                if done is None:
                    raise  # it was made ten minutes ago, at this moment
        return again(done)


def until_of(call: Call) -> float:
    """The monotonic time at which nobody waits for the answer any more."""
    return time.monotonic() + (_LONGEST_S if call.left_s is None else max(call.left_s, _LEAST_S))


def names_of(call: Call) -> Any:
    """The call's argument ``names``, int64 [n]. TypeError for anything else."""
    names = call.args["names"]
    if not isinstance(names, np.ndarray) or names.dtype != np.int64 or names.ndim != 1:
        raise TypeError("names are an array of int64")
    return names
