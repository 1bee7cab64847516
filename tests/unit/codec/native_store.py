"""The real store behind the interface of `FakeStore`: one partition of a session made for the test."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from transferqueue import _native
from transferqueue.codec import PutPlan

_numbers = itertools.count()


class NativeStore:
    """Rows are numbered over all puts, as in `FakeStore`; their global indexes are looked up."""

    def __init__(self, store: _native.Store) -> None:
        self.store = store
        self.partition = f"p{next(_numbers)}"
        self.indexes: list[int] = []

    @property
    def n_rows(self) -> int:
        return len(self.indexes)

    def put(self, plan: PutPlan, rows: Sequence[int] | None = None) -> Sequence[int]:
        reservation = self.store.reserve(plan.nbytes, 5.0)
        plan.write(reservation)
        if rows is None:
            result = self.store.publish(self.partition, count=plan.n_rows, reservation=reservation, fields=plan.layouts)
            self.indexes.extend(result.indexes.tolist())
            return range(self.n_rows - plan.n_rows, self.n_rows)
        self.store.publish(self.partition, indexes=self._global(rows), reservation=reservation, fields=plan.layouts)
        return rows

    def resolve(
        self, rows: Sequence[int], fields: Sequence[str] | None = None, *, merge: bool = True
    ) -> _native.Resolved:
        return self.store.resolve(self.partition, indexes=self._global(rows), fields=fields)

    def _global(self, rows: Sequence[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.array([self.indexes[row] for row in rows], dtype=np.int64)
