"""Second copies of payload: pulled before a put is acknowledged, and no cache.

A copy that is kept lies in `PAYLOAD` like any copy, so who reads it there needs no other. That it is kept says a row
without data in the hidden partition `KEPT`, which is made *before* the copy is: whoever makes room lists the copies
first and then what is kept, so it never clears one that was made under a mark.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from transferqueue.errors import TransferQueueError
from transferqueue.logs import get_logger
from transferqueue.nodes.fetching import Fetcher
from transferqueue.nodes.link import NodeLink
from transferqueue.nodes.located import Group
from transferqueue.nodes.names import KEPT, PAYLOAD, Mask, Names, ordinals_of
from transferqueue.nodes.naming import rows_there
from transferqueue.nodes.payload import PayloadStore

if TYPE_CHECKING:
    from transferqueue._native import Store
    from transferqueue.node_service.references import References

_log = get_logger("nodes")
# A put may wait so long for its limits and room, with its copy made, before the home names it.
KEEP_S = 60.0
_CALL_S = 10.0


class Keeper:
    """Of one agent. Thread-safe.

    Args:
        store, payload: of the node.
        fetcher: brings payload here.
        link: how other nodes are asked.
        references: what the partitions here name, those that are followed as a standby included.

    Attributes:
        keep_s: how long a copy that nobody names is kept.
    """

    def __init__(
        self, store: Store, payload: PayloadStore, fetcher: Fetcher, link: NodeLink, references: References
    ) -> None:
        self._store = store
        self._payload = payload
        self._fetcher = fetcher
        self._link = link
        self._references = references
        self._guard = threading.Lock()
        self._young: list[tuple[float, Names]] = []
        self._suspects: Names = np.empty(0, dtype=np.int64)
        self.keep_s = KEEP_S
        store.ensure_partition(KEPT)

    def keep(self, names: Names, fields: Sequence[str] | None, until_s: float) -> None:
        """Returns when payload of other nodes lies here, too, and stays while a partition here names it.

        Args:
            fields: what there is under the names; None: whoever has them is asked.

        Raises:
            GoneError: they were cleared. StorageFullError: no room here. NodeUnreachableError, DataLostError: nobody
            has them who answers.
        """
        names = np.unique(names[ordinals_of(names) != self._link.ordinal])
        if not len(names):
            return
        with self._guard:
            self._young.append((time.monotonic(), names))
        self._store.publish(KEPT, indexes=names, create_rows=True)
        groups = self._groups(names, until_s) if fields is None else [Group(list(fields), names)]
        for group in groups:
            self._fetcher.fetch(PAYLOAD, self._link.ordinal, group.names, [group], until_s).release()

    def lacks(self, names: Names) -> Mask:
        """bool [names]: those of other nodes of which no copy is kept here, and own ones that are not here."""
        if not len(names):
            return np.zeros(0, dtype=np.bool_)
        kept = np.isin(names, self._kept()) | (ordinals_of(names) == self._link.ordinal)
        lacking: Mask = ~(kept & self._payload.have(names))
        return lacking

    def forget(self, names: Names) -> None:
        """Nobody names them any more: copies of them are of no use, and go like any."""
        if len(names):
            self._store.clear_rows(KEPT, indexes=names)

    def held(self, names: Names) -> list[tuple[list[str], Names]]:
        """(fields, names that have them) of what is here."""
        resolved = self._store.resolve(PAYLOAD, indexes=names, fields=None, lease=False)
        found: dict[bytes, tuple[list[str], Names]] = {}
        for number, name in enumerate(resolved.fields):
            there = rows_there(resolved, number)
            found.setdefault(there.tobytes(), ([], names[there]))[0].append(name)
        return list(found.values())

    def sweep(self) -> None:
        """What no partition here names, for a while and at two looks, is a copy like any other from then on."""
        now_s = time.monotonic()
        kept = self._kept()
        with self._guard:
            self._young = [entry for entry in self._young if now_s - entry[0] < self.keep_s]
            young = [names for _, names in self._young]
        old = np.setdiff1d(kept, np.concatenate(young)) if young else kept
        if not len(old):
            self._suspects = old
            return
        unnamed = old[~self._references.named(old)]
        over = np.intersect1d(unnamed, self._suspects)
        self._suspects = np.setdiff1d(unnamed, over)
        if len(over):
            self._store.clear_rows(KEPT, indexes=over)

    def _kept(self) -> Names:
        return self._store.production(KEPT, [])[1]

    def _groups(self, names: Names, until_s: float) -> list[Group]:
        groups: list[Group] = []
        ordinals = ordinals_of(names)
        for ordinal in np.unique(ordinals).tolist():
            wanted = names[ordinals == ordinal]
            for source in [ordinal, *self._link.others()]:
                try:
                    limit_s = min(until_s, time.monotonic() + _CALL_S)
                    answer = self._link.call(source, "payload.held", {"names": wanted}, until_s=limit_s)
                except TransferQueueError as error:
                    _log.debug("node %d was not asked for payload of node %d: %s", source, ordinal, error)
                    continue
                if answer:
                    groups.extend(Group(list(fields), np.asarray(some, dtype=np.int64)) for fields, some in answer)
                    break
        return groups
