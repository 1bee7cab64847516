"""The payload that one node keeps under names: what its own processes put, and copies of what others did.

All of it are rows of the hidden partition `PAYLOAD` of the node's own store, so it is leased, viewed, compacted and
spilled like any row.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from transferqueue._native import claim_clock
from transferqueue.errors import StaleMetadataError, TransferTimeoutError
from transferqueue.nodes.names import PAYLOAD, Mask, Names, ordinals_of
from transferqueue.tag_maps import TagDecoder, encode_tags
from transferqueue.waiting import Sleep, sleep_here

if TYPE_CHECKING:
    from transferqueue._native import FieldLayout, Reservation, Resolved, Store

# How long the sweep spares payload that no partition's home knows of, counted from when it first saw it. A put that is
# not done by half of it says so in the payload's tags, and again after each further half.
GRACE_S = 10.0
IN_FLIGHT_TAG = "until"
_TAKEN_AT_ONCE = 1 << 16
_FAR = 1 << 32


class PayloadStore:
    """The names that one process's store has.

    Args:
        store: of the node.
        ordinal: of the node.
    """

    def __init__(self, store: Store, ordinal: int) -> None:
        self._store = store
        self.ordinal = ordinal
        store.ensure_partition(PAYLOAD)

    def publish(
        self, rows: int, reservation: Reservation, layouts: list[FieldLayout], lock_timeout_s: float | None
    ) -> InFlight:
        """New payload, under new names."""
        nbytes = reservation.nbytes
        done = self._store.publish(
            PAYLOAD, count=rows, reservation=reservation, fields=layouts, lock_timeout_s=lock_timeout_s
        )
        return InFlight(self._store, done.indexes, nbytes)

    def publish_copies(
        self, names: Names, reservation: Reservation, layouts: list[FieldLayout], pulled_nbytes: int
    ) -> None:
        """Payload of other nodes under its names, one row each; fields that are there already are replaced by equal
        ones, further ones join them. `pulled_nbytes`: what came over the network for it."""
        self._store.publish(PAYLOAD, indexes=names, create_rows=True, reservation=reservation, fields=layouts)
        self._store.count_sent(pulled=pulled_nbytes)

    def change(self) -> Sleep:
        """For `wait_for_change`; to be made before a look."""
        return Sleep.before_look(self._store, PAYLOAD, None)

    def wait_for_change(self, before: Sleep, longest_s: float) -> None:
        """Until names came or went since then."""
        sleep_here(self._store, replace(before, longest_s=longest_s))

    def discard(self, names: Names) -> None:
        """Forgets names; those that are not there are ignored."""
        if len(names):
            self._store.clear_rows(PAYLOAD, indexes=names)

    def resolve(self, names: Names, fields: Sequence[str], *, lease: bool = True) -> Resolved:
        """The rows of names, in their order."""
        return self._store.resolve(PAYLOAD, indexes=names, fields=fields, lease=lease)

    def all_names(self) -> Names:
        """Those that are there, copies included, ascending."""
        _, indexes, _, _ = self._store.production(PAYLOAD, [])
        return np.sort(indexes)

    def new_names(self, count: int, spent: int) -> Names:
        """Names that are nobody's and never were, for payload that a load brings: int64 [n, 2], first and count of
        stretches.

        Args:
            spent: indexes of this node below it are those of rows that it brings, too.
        """
        found = np.zeros((0, 2), dtype=np.int64)
        if count and int(self._store.publish(PAYLOAD, count=1).indexes[0]) < spent:
            # The store will count on from behind these, once it is loaded; no puts until then come near them.
            return np.array([[spent + _FAR, count]], dtype=np.int64)
        while count:
            # Rows that exist for a moment: what was given out once is never given out again.
            indexes = self._store.publish(PAYLOAD, count=min(count, _TAKEN_AT_ONCE)).indexes
            self._store.clear_rows(PAYLOAD, indexes=indexes)
            found = np.concatenate([found, [[int(indexes[0]), len(indexes)]]])
            count -= len(indexes)
        return found

    def split(self, names: Names) -> tuple[Names, Names]:
        """(those that this node gave out, copies of others')."""
        own = ordinals_of(names) == self.ordinal
        return names[own], names[~own]

    def have(self, names: Names) -> Mask:
        """bool [names]: which are there."""
        if not len(names):
            return np.zeros(0, dtype=np.bool_)
        resolved = self._store.resolve(PAYLOAD, indexes=names, fields=[], lease=False)
        there = np.ones(len(names), dtype=np.bool_)
        there[resolved.gone] = False
        return there

    def in_flight(self, names: Names) -> Mask:
        """bool [names]: those of puts that said, not too long ago, that they are not done (see `InFlight`)."""
        decode = TagDecoder(allow_pickle=False).decode
        now_s = claim_clock()
        tags = self._store.describe_rows(PAYLOAD, names).tags
        return np.array([bool(blob) and decode(blob).get(IN_FLIGHT_TAG, 0.0) > now_s for blob in tags], dtype=np.bool_)


class InFlight:
    """Payload that was published on its node and that its partition's home does not know of yet.

    The node clears names that no home knows, since a producer may die between the two; it spares those that it has not
    known for long. A put that takes longer has to say so in time: `keep` before each attempt at the home.

    Attributes:
        names: int64 [rows].
        nbytes: of their block, which the limits of their partition count.
    """

    def __init__(self, store: Store, names: Names, nbytes: int) -> None:
        self._store = store
        self.names = names
        self.nbytes = nbytes
        self._safe_until_s = time.monotonic() + GRACE_S / 2

    def keep(self) -> None:
        """The names are safe for `GRACE_S` / 2 from now on.

        Raises:
            TransferTimeoutError: too late: this process stood still for so long that they were cleared.
        """
        now_s = time.monotonic()
        if now_s < self._safe_until_s:
            return
        tags = encode_tags({IN_FLIGHT_TAG: claim_clock() + GRACE_S})
        try:
            self._store.merge_tags(PAYLOAD, self.names, [tags] * len(self.names))
        except StaleMetadataError as error:
            raise TransferTimeoutError(
                "the put was stopped for so long between its two steps that its payload was taken for that of a dead "
                "process and cleared; nothing is stored, put it again",
                missing=len(self.names),
            ) from error
        self._safe_until_s = now_s + GRACE_S / 2
