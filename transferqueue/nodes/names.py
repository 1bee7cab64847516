"""Names of payload: what the rows of a node are called in the whole cluster.

A node of ordinal k gives out row indexes from ``k << 50`` on, so that no two nodes ever give out the same. Payload
that one node keeps for a partition of another lies in a hidden partition of its own, `PAYLOAD`; its row indexes there
are the payload's *names*. What a name means never changes: its bytes are written once, and a row that is cleared is
never given out again. So a name can be copied to any node and needs no invalidation: a row of `PAYLOAD` whose name is
another node's is a copy of that node's.

Rows that lie at their partition's home (put by a process of that node) have no names until another node wants them:
then the home gives names to their block, rows of one block in a row (`node_service.block_names`).
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

# No user can name a partition so: `check_name` of the cluster's calls refuses a leading \x01.
PAYLOAD = "\x01payload"
HIDDEN = "\x01"
# Of nodes with ``cluster.replicas=2``: rows without data, one for each name whose copy in `PAYLOAD` is no cache.
KEPT = "\x01kept"
# What a node follows as the standby of a partition, under a name of its own.
STANDBY = "\x01standby:"
_MOST_NAME_NBYTES = 400
ORDINAL_SHIFT = 50
MOST_ROWS = 1 << (ORDINAL_SHIFT - 1)
"""That a node gives out in its life."""
MOST_NODES = 1 << (62 - ORDINAL_SHIFT)

Names = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def first_row(ordinal: int) -> int:
    """The first row index that the node gives out."""
    if not 0 <= ordinal < MOST_NODES:
        raise ValueError(f"a cluster has at most {MOST_NODES} nodes in its life, numbered from 0; not {ordinal}")
    return ordinal << ORDINAL_SHIFT


def ordinal_of(name: int) -> int:
    """The node that gave the name out, and keeps the payload while anybody may want it."""
    return name >> ORDINAL_SHIFT


def ordinals_of(names: Names) -> Names:
    """`ordinal_of` of each."""
    return names >> ORDINAL_SHIFT


def is_hidden(partition: str) -> bool:
    """Whether it is one of the cluster's own partitions, which no listing shows."""
    return partition.startswith(HIDDEN)


def standby_name(partition: str) -> str:
    """The hidden partition in which a standby follows `partition`."""
    name = STANDBY + partition
    if len(name.encode("utf-8", "surrogatepass")) <= _MOST_NAME_NBYTES:
        return name
    return STANDBY + "\x01" + hashlib.blake2b(partition.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def is_standby(partition: str) -> bool:
    """Whether it is the hidden partition of a standby."""
    return partition.startswith(STANDBY)


def ranges_of(starts: Names, counts: Names) -> Names:
    """int64: of each start as many numbers from there on, one after another."""
    behind = np.cumsum(counts)
    total = int(behind[-1]) if len(behind) else 0
    numbers: Names = np.arange(total, dtype=np.int64) + np.repeat(starts - (behind - counts), counts)
    return numbers


def is_run(names: Names) -> bool:
    """Whether they are consecutive and ascending, as those of one put are; not of no names."""
    return bool(names[-1] - names[0] == len(names) - 1 and (names[1:] - names[:-1] == 1).all())


def runs_of(names: Names) -> list[tuple[int, int]]:
    """(first, behind the last) of each stretch of consecutive names, ascending; they may repeat, in any order."""
    if not len(names):
        return []
    if is_run(names):
        return [(int(names[0]), int(names[-1]) + 1)]
    ordered = np.unique(names)
    cuts = np.flatnonzero(np.diff(ordered) != 1) + 1
    firsts = ordered[np.concatenate(([0], cuts))]
    lasts = ordered[np.concatenate((cuts - 1, [len(ordered) - 1]))]
    return [(int(first), int(last) + 1) for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True)]
