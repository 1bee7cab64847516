"""Rows that a consumer took and has yet to say whether it is done with them."""

from __future__ import annotations

from dataclasses import dataclass

from transferqueue.metadata import BatchMeta


@dataclass(eq=False)
class Claim:
    """Made by `TransferQueueClient.claim`; ends with `ack` or `nack`, or by itself.

    By itself it ends when its lease runs out, when the process that it belongs to dies or closes the session, when the
    consumption of the task is reset, and when the partition is cleared. It belongs to the process that claimed it or,
    since, extended it last. It can be pickled: whichever process of the session has it may acknowledge, give back or
    extend it. The fencing number decides: a claim ends once, and from then on every copy of it is refused.

    Attributes:
        meta: the rows, ready, with tags as custom_meta; empty when nothing came in time.
        task_name, partition_id: whose rows these are.
        fencing: number of the claim, unique in the session; later claims have greater ones. 0 for an empty one.
        lease_s: how long it was given when it was made or extended, in seconds.
        deadline_s: when that is over, in seconds of ``time.clock_gettime(time.CLOCK_BOOTTIME)``. Extending a copy does
            not change the others; the session knows the right one.
    """

    meta: BatchMeta
    task_name: str
    partition_id: str
    fencing: int
    lease_s: float
    deadline_s: float

    def __bool__(self) -> bool:
        return bool(self.meta)
