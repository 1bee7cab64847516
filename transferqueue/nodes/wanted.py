"""Rows that a read needs and that are not here: which they are, and who is asked for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from transferqueue.nodes.described import Described, Positions, Request
from transferqueue.nodes.located import Group
from transferqueue.nodes.names import PAYLOAD, Names, is_run, ordinals_of
from transferqueue.nodes.naming import rows_there
from transferqueue.nodes.transport.protocol import PayloadRequest
from transferqueue.nodes.transport.received import read_description

if TYPE_CHECKING:
    from transferqueue._native import Resolved


@dataclass(frozen=True)
class Wanted:
    """Rows of a group that are not here, all with the same fields.

    Attributes:
        group: whose.
        fields: names.
        rows: int64, positions in the group; every name once.
    """

    group: Group
    fields: list[str]
    rows: Positions


def missing_of(group: Group, resolved: Resolved) -> list[Wanted]:
    """What a resolution of the group did not find, fields with the same rows together."""
    by_rows: dict[bytes, Wanted] = {}
    seen: dict[int, Positions] = {}
    for number, name in enumerate(resolved.fields):
        shared = resolved.piece_list_id(number)
        rows = seen.get(shared)
        if rows is None:
            rows = seen[shared] = _once(group.names, np.flatnonzero(~rows_there(resolved, number)))
        if len(rows):
            by_rows.setdefault(rows.tobytes(), Wanted(group, [], rows)).fields.append(name)
    return list(by_rows.values())


def _once(names: Names, rows: Positions) -> Positions:
    """Without the rows whose name an earlier one has: a row that is asked for twice (a pad) is pulled once."""
    if len(rows) and is_run(names[rows]):
        return rows
    _, once = np.unique(names[rows], return_index=True)
    return rows[np.sort(once)]


def requests_of(partition: str, home: int, indexes: Positions, want: Wanted) -> list[Request]:
    """Who is asked for which rows: nodes that keep payload under names, and the home for what lies there as such."""
    group, rows = want.group, want.rows
    names = group.names[rows]
    at_home = group.home_blocks[rows] >= 0 if len(group.home_blocks) else np.zeros(len(rows), dtype=np.bool_)
    fields = tuple(want.fields)
    ordinals = np.where(at_home, -1, ordinals_of(names))
    requests = []
    for ordinal in np.unique(ordinals).tolist():
        positions = np.flatnonzero(ordinals == ordinal)
        if ordinal < 0:
            chosen = rows[positions]
            what = PayloadRequest(partition, indexes[chosen], fields, group.home_blocks[chosen])
        else:
            what = PayloadRequest(PAYLOAD, names[positions], fields)
        requests.append(Request(home if ordinal < 0 else ordinal, what, positions))
    return requests


def described_with(requests: Sequence[Request], want: Wanted) -> list[Described] | None:
    """What the home said of the rows when it located them, if it did and all of them are wanted: then they are asked
    for by the blocks that it spoke of, and what those hold does not change.

    Raises:
        CorruptSegmentError: it contradicts itself or is about something else.
    """
    group = want.group
    if not group.described or len(requests) != 1 or len(want.rows) != len(group.names):
        return None
    what = requests[0].what
    parts = {part[0]: part for part in group.described if type(part) is list and part and type(part[0]) is str}
    return [read_description([parts.get(name) for name in what.fields], what).fields]
