"""What a source says of rows before their bytes come, and which rows can lie in one block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from transferqueue._native import DENSE, RAGGED
from transferqueue.codec.schema import read_schema
from transferqueue.codec.stub_schema import is_stub
from transferqueue.errors import CorruptSegmentError
from transferqueue.nodes.pull_block import PulledField
from transferqueue.nodes.transport.protocol import FieldDescription, PayloadRequest

Positions = npt.NDArray[np.int64]
_MOST_NBYTES = 1 << 50


@dataclass(frozen=True)
class Request:
    """Rows that one node is asked for.

    Attributes:
        ordinal: the node.
        what: the rows, every one once, and their fields.
        positions: int64 [rows], where they stand among the rows wanted.
    """

    ordinal: int
    what: PayloadRequest
    positions: Positions

    def some(self, chosen: Positions) -> Request:
        """Those of its rows."""
        what = self.what
        blocks = what.blocks[chosen] if len(what.blocks) else what.blocks
        return replace(
            self, what=replace(what, rows=what.rows[chosen], blocks=blocks), positions=self.positions[chosen]
        )


def some_of(field: FieldDescription, chosen: Positions) -> FieldDescription:
    """Those of its rows."""
    return replace(field, which=field.which[chosen], sizes=field.sizes[chosen])


def check(field: FieldDescription, name: str, rows: int) -> None:
    """Raises CorruptSegmentError for a description that contradicts itself: it came from another machine."""
    whole = len(field.which) == len(field.sizes) == rows and bool(field.types)
    if whole and rows:
        whole = int(field.which.min()) >= 0 and int(field.which.max()) < len(field.types)
        whole = whole and int(field.sizes.min()) >= 0 and int(field.sizes.sum()) <= _MOST_NBYTES
    if not whole:
        raise CorruptSegmentError(f"another node describes field {name!r} in a way that no rows have")
    for number, (kind, schema, row_nbytes) in enumerate(field.types):
        read_schema(schema)
        wrong = kind not in (DENSE, RAGGED) or is_stub(schema)
        if wrong or (kind == DENSE and (field.sizes[field.which == number] != row_nbytes).any()):
            raise CorruptSegmentError(f"another node describes rows of field {name!r} that cannot be")


Described = Mapping[str, FieldDescription]


def alike(
    requests: Sequence[Request], described: Sequence[Described], fields: Sequence[str]
) -> Iterator[tuple[list[tuple[Request, Described]], dict[str, PulledField]]]:
    """Rows that can lie in one block, class by class: what to ask of whom, and the fields of the block, whose rows are
    those of the requests in the order of `Request.positions`. Mostly there is one class: rows of one field mostly have
    one type."""
    types: dict[tuple[tuple[int, bytes, int], ...], int] = {}
    classes: list[Positions] = []
    for request, description in zip(requests, described, strict=True):
        classes.append(_classes(request, description, fields, types))
    for number, key in enumerate(types):
        some: list[tuple[Request, Described]] = []
        for request, description, found in zip(requests, described, classes, strict=True):
            rows = np.flatnonzero(found == number)
            if len(rows) == len(request.positions):
                some.append((request, description))
            elif len(rows):
                some.append((request.some(rows), {name: some_of(description[name], rows) for name in fields}))
        order = np.argsort(np.concatenate([request.positions for request, _ in some]), kind="stable")
        pulled = {}
        for name, (kind, schema, row_nbytes) in zip(fields, key, strict=True):
            sizes = np.concatenate([description[name].sizes for _, description in some])
            pulled[name] = PulledField(kind, schema, np.ascontiguousarray(sizes[order]), row_nbytes)
        yield some, pulled


def _classes(
    request: Request,
    description: Described,
    fields: Sequence[str],
    types: dict[tuple[tuple[int, bytes, int], ...], int],
) -> Positions:
    """The number of each row's class in `types`, which grows."""
    rows = len(request.positions)
    columns = []
    for name in fields:
        if name not in description:
            raise CorruptSegmentError(f"another node describes no field {name!r}")
        check(description[name], name, rows)
        columns.append(description[name].which)
    if rows and all(len(description[name].types) == 1 for name in fields):
        only = tuple(description[name].types[0] for name in fields)
        return np.full(rows, types.setdefault(only, len(types)), dtype=np.int64)
    combined = np.stack(columns, axis=1)
    distinct, which = np.unique(combined, axis=0, return_inverse=True)
    numbers = []
    for combination in distinct.tolist():
        key = tuple(description[name].types[number] for name, number in zip(fields, combination, strict=True))
        numbers.append(types.setdefault(key, len(types)))
    return np.array(numbers, dtype=np.int64)[which.reshape(-1)]
