"""Claims of processes of other nodes: their rows come back at once when such a process dies.

In the home's store a claim belongs to the agent, which made it for the process that asked. The agent remembers whose it
is and asks that process's node, now and then, whether it lives; a dead one's claims are given back. What the agent
does not remember, because it was started anew, ends as claims of the dead do: the rows are offered again.
"""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transferqueue.errors import DataLostError, StaleMetadataError, TransferQueueError
from transferqueue.nodes.link import NodeLink

if TYPE_CHECKING:
    from transferqueue._native import Store

_CALL_S = 2.0


@dataclass(frozen=True)
class _Claimant:
    ordinal: int
    owner: int  # of the process in its node's session; never used again
    until_s: float


class RemoteClaims:
    """Of one agent. Thread-safe.

    Args:
        store: of the home.
        link: how the claimants' nodes are asked.
    """

    def __init__(self, store: Store, link: NodeLink) -> None:
        self._store = store
        self._link = link
        self._guard = threading.Lock()
        self._claims: dict[tuple[str, str, int], _Claimant] = {}

    def note(self, partition: str, task: str, fencing: int, claimant: Any, lease_s: float) -> None:
        """A process claimed, or extended; `claimant`: (ordinal of its node, its owner number there)."""
        ordinal, owner = claimant
        with self._guard:
            self._claims[partition, task, fencing] = _Claimant(
                int(ordinal), int(owner), time.monotonic() + float(lease_s)
            )

    def forget(self, partition: str, task: str, fencing: int) -> None:
        """It was acknowledged or given back."""
        with self._guard:
            self._claims.pop((partition, task, fencing), None)

    def give_back_of_the_dead(self) -> None:
        """One look at all claimants."""
        now_s = time.monotonic()
        with self._guard:
            for claim in [claim for claim, of in self._claims.items() if of.until_s <= now_s]:
                del self._claims[claim]  # over by its time
            claims = dict(self._claims)
        for ordinal in {of.ordinal for of in claims.values()}:
            owners = sorted({of.owner for of in claims.values() if of.ordinal == ordinal})
            dead = set(owners) - self._alive(ordinal, owners)
            for claim, of in claims.items():
                if of.ordinal == ordinal and of.owner in dead:
                    with self._guard:
                        if self._claims.get(claim) != of:
                            continue  # extended by somebody else meanwhile
                        del self._claims[claim]
                    with contextlib.suppress(StaleMetadataError):  # over already
                        self._store.finish_claim(*claim, False)

    def _alive(self, ordinal: int, owners: list[int]) -> set[int]:
        try:
            until_s = time.monotonic() + _CALL_S
            return set(self._link.call(ordinal, "clients.alive", {"owners": owners}, until_s=until_s))
        except DataLostError:
            return set()
        except TransferQueueError:
            return set(owners)  # not known: their leases run


def alive_owners(store: Store, owners: list[int]) -> list[int]:
    """Those of them that are processes that live: a node's answer about its own."""
    alive = {client["owner"] for client in store.clients() if client["alive"]}
    return [owner for owner in owners if owner in alive]
