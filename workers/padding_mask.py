"""Which rows of a batch are there only so that all ranks have equally many."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from transferqueue.workers.outputs import current_outputs


def padding_mask() -> npt.NDArray[np.bool_] | None:
    """In a method that was called with metadata: True for each row of its first batch that is a pad, bool ``[rows]``.

    A method that sums or averages over its rows leaves these out: ``loss[~torch.from_numpy(padding_mask())].mean()``.
    What it returns row for row, and what a rank with nothing but pads returns, the group leaves out. None in a call
    without metadata.
    """
    outputs = current_outputs.get()
    return None if outputs is None else np.asarray(outputs.rows.padding_mask, dtype=np.bool_)
