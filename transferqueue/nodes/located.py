"""What a partition's home answers to a node that wants to read rows: under which names their payload is to be had."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from transferqueue.nodes.messages import carried
from transferqueue.nodes.names import Names

Indexes = npt.NDArray[np.int64]


@carried
@dataclass
class Group:
    """Fields whose payload has the same names, row by row.

    Attributes:
        fields: their names.
        names: int64 [rows].
        copies: ordinals of nodes that keep the payload besides those that the names say.
        home_blocks: int64 [rows], for rows that lie at the partition's home as such: the id of the block they lie in,
            else -1. Empty: none does.
        more_names, more_indexes, more_blocks: int64 each, names, indexes and, if any lie at the home, blocks of rows
            that were not asked for and may come with those that were: see `companions`.
        described: of rows that all lie at the home as such, what `payload.describe` would answer of them, if it was
            asked for.
    """

    fields: list[str]
    names: Names
    copies: list[int] = field(default_factory=list)
    home_blocks: Indexes = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    more_names: Names = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    more_indexes: Indexes = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    more_blocks: Indexes = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    described: list[Any] = field(default_factory=list)


@carried
@dataclass
class Located:
    """Rows of one partition as they were at one moment.

    Attributes:
        partition: whose rows.
        home: ordinal of the node that answered.
        indexes: int64 [rows], the global indexes, in the order asked for.
        fields: what is to be read, in order; every one is in one group.
        groups: where to.
    """

    partition: str
    home: int
    indexes: Indexes
    fields: list[str]
    groups: list[Group]

    def check(self, rows: int | None) -> None:
        """Raises ValueError for an answer that contradicts itself: it came from another machine."""
        count = len(self.indexes)
        grouped = [name for group in self.groups for name in group.fields]
        if (
            (rows is not None and rows != count)
            or len(set(grouped)) != len(grouped)
            or set(grouped) != set(self.fields)
        ):
            raise ValueError(f"{count} located rows of {len(grouped)} fields are not what was asked for")
        for group in self.groups:
            sizes = (len(group.names), len(group.home_blocks) or count)
            if sizes != (count, count) or (count and int(group.names.min()) < 0):
                raise ValueError("located rows without names")
            more = len(group.more_names)
            blocks = more if len(group.home_blocks) else 0
            if (len(group.more_indexes), len(group.more_blocks)) != (more, blocks):
                raise ValueError("rows that come with others, without names")
