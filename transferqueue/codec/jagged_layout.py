"""The layout "jagged": every tensor that has a shape comes back as a nested tensor, whatever it was put as.

Programs written for TransferQueue 0.1.11 count on it. The rule, for the rows of a column:

1. not all tensors, or of differing dtype or rank: a NonTensorStack of the rows;
2. 0-dimensional: a dense 1-D tensor;
3. shapes that differ in at most one dimension: jagged, with that dimension ragged, else the one that was ragged when it
   was put, else the first;
4. else: strided nested.

A dense column is not copied for it: its rows lie one after another, which is what a jagged tensor's values are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from transferqueue.codec.nested_tensors import jagged_over

STORED = "stored"
JAGGED = "jagged"
LAYOUTS = (STORED, JAGGED)


class JaggedViews:
    """Dense columns of one read seen as jagged.

    Args:
        n_rows: of every column.
        offsets: of the jagged columns of the same read, int64 [rows + 1] each.

    Columns of equal row lengths share one offsets tensor, so that torch knows their ragged sizes for equal and
    arithmetic between them (a mask on log-probs) works.
    """

    def __init__(self, n_rows: int, offsets: Sequence[torch.Tensor]) -> None:
        self._n_rows = n_rows
        self._known = list(offsets)
        self._by_length: dict[int, torch.Tensor] = {}

    def of(self, column: Any) -> Any:
        """A dense tensor [rows, length, ...] as a jagged one over the same memory; anything else as it is."""
        if type(column) is not torch.Tensor or column.is_nested or column.dim() < 2:
            return column
        shape = column.shape
        length = shape[1]
        values = column.view(shape[0] * length, *shape[2:])
        return jagged_over(values, self._offsets(length), ragged_dim=0, shortest=length, longest=length)

    def _offsets(self, length: int) -> torch.Tensor:
        found = self._by_length.get(length)
        if found is None:
            made = torch.arange(self._n_rows + 1, dtype=torch.int64) * length
            found = next((known for known in self._known if torch.equal(known, made)), made)
            self._by_length[length] = found
        return found
