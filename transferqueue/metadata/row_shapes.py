"""Shapes row by row, for fields whose rows differ.

Rows that are stored have their shapes in the index, so metadata does not carry them: `set_row_shape_lookup` is
where the attached client says how to fetch them. Only shapes that a program itself gave (the constructor's
`per_sample_shapes`, `add_fields`) are kept, as one int64 matrix.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from types import MethodType
from typing import TYPE_CHECKING

import numpy as np

from transferqueue.errors import SessionNotFoundError
from transferqueue.metadata.field_schema import plain_shape

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from transferqueue.metadata.batch_meta import BatchMeta

Shape = tuple[int, ...]
RowShapeLookup = Callable[["BatchMeta", str], Sequence[Shape]]

_ABSENT, _NO_SHAPE = -1, -2  # fills a row of lower rank; the whole row stands for None
_registered: Callable[[], RowShapeLookup | None] | None = None


def set_row_shape_lookup(lookup: RowShapeLookup | None) -> None:
    """Registers ``lookup(meta, field name) -> one shape per row``, called when such shapes are asked for.

    A bound method is held weakly: a client kept here would keep the payload of its closed session in memory.
    """
    global _registered
    _registered = weakref.WeakMethod(lookup) if isinstance(lookup, MethodType) else lambda: lookup


def look_up_row_shapes(meta: BatchMeta, field: str) -> list[Shape]:
    """The shape of each row of `meta` in `field`, from the index of its session."""
    if len(meta) == 0:
        return []
    lookup = None if _registered is None else _registered()
    if lookup is None:
        raise SessionNotFoundError(
            f"the row shapes of field {field!r} stand in the index of session {meta.session!r}, and this process is "
            "not attached to it: call transferqueue.init() first",
            session=meta.session,
        )
    return [tuple(shape) for shape in lookup(meta, field)]


class RowShapes:
    """One shape per row, immutable: int64 [rows, highest rank]."""

    __slots__ = ("matrix",)

    def __init__(self, matrix: NDArray[np.int64]) -> None:
        self.matrix = matrix

    @classmethod
    def of(cls, shapes: Iterable[Iterable[int] | None]) -> RowShapes:
        plain = [None if shape is None else plain_shape(shape) for shape in shapes]
        rank = max((1 if shape is None else len(shape) for shape in plain), default=0)
        matrix = np.full((len(plain), rank), _ABSENT, dtype=np.int64)
        for row, shape in enumerate(plain):
            if shape is None:
                matrix[row] = _NO_SHAPE
            else:
                matrix[row, : len(shape)] = shape
        return cls(matrix)

    @classmethod
    def uniform(cls, shape: Shape | None, rows: int) -> RowShapes:
        one = cls.of([shape]).matrix
        return cls(np.broadcast_to(one, (rows, one.shape[1])))

    def __len__(self) -> int:
        return len(self.matrix)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RowShapes) and self.tolist() == other.tolist()

    __hash__ = None  # type: ignore[assignment]

    def row(self, position: int) -> Shape | None:
        sizes = self.matrix[position]
        if sizes.size and sizes[0] == _NO_SHAPE:
            return None
        return tuple(sizes[sizes >= 0].tolist())

    def tolist(self) -> list[Shape | None]:
        if self.matrix.size == 0 or self.matrix.min() >= 0:
            return [tuple(sizes) for sizes in self.matrix.tolist()]
        return [self.row(position) for position in range(len(self))]

    def take(self, selection: slice | NDArray[np.int64]) -> RowShapes:
        return RowShapes(self.matrix[selection])

    @classmethod
    def concat(cls, pieces: Sequence[RowShapes]) -> RowShapes:
        rank = max(piece.matrix.shape[1] for piece in pieces)
        widened = []
        for piece in pieces:
            missing = rank - piece.matrix.shape[1]
            widened.append(np.pad(piece.matrix, ((0, 0), (0, missing)), constant_values=_ABSENT))
        return cls(np.concatenate(widened))
