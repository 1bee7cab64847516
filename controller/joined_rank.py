"""A rank whose output is a part of the joined result of a call."""

from __future__ import annotations

from typing import Any, NamedTuple

from transferqueue.workers.data_proto import OutputShard


class JoinedRank(NamedTuple):
    """`rank` of the group; what it got had `padded_rows` rows, the last `pads` of them pads (zeros: not padded)."""

    rank: int
    padded_rows: int = 0
    pads: int = 0

    def shard(self, outputs: list[Any], row_counts: list[Any] | None = None) -> OutputShard:
        """This rank's of the outputs of all ranks, pending, and of their row counts."""
        rows = None if row_counts is None else row_counts[self.rank]
        return OutputShard(outputs[self.rank], rows, self.padded_rows, self.pads)
