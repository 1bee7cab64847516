"""What programs read of a partition's state: the answer of the named actor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

Indexes = npt.NDArray[np.int64]


class ProductionStatus:
    """1 where a row has a field: ``status[global index, column]``, each an int or a sequence of them (torch int8).

    Holds the rows that exist only: global indexes are never used again, so a matrix over all of them would grow for
    ever. Rows that do not exist have no field. `dense` is that matrix.
    """

    def __init__(self, indexes: Indexes, ready: npt.NDArray[np.int8]) -> None:
        self._indexes = indexes  # ascending
        self._ready = ready  # [rows, columns]

    @property
    def shape(self) -> torch.Size:
        """Of `dense`."""
        return torch.Size((int(self._indexes[-1]) + 1 if len(self._indexes) else 0, self._ready.shape[1]))

    def dense(self) -> torch.Tensor:
        """int8 [largest global index + 1, columns]."""
        matrix = torch.zeros(self.shape, dtype=torch.int8)
        matrix[torch.from_numpy(self._indexes)] = torch.from_numpy(self._ready)
        return matrix

    def __getitem__(self, key: tuple[Any, Any]) -> torch.Tensor:
        if not isinstance(key, tuple) or len(key) != 2 or isinstance(key[0], slice):
            raise TypeError(f"status[global index, column], both ints or sequences of them; not {key!r}; see dense()")
        wanted = np.asarray(key[0], dtype=np.int64)
        at = np.minimum(np.searchsorted(self._indexes, wanted), max(0, len(self._indexes) - 1))
        exists = self._indexes[at] == wanted if len(self._indexes) else np.zeros(wanted.shape, dtype=bool)
        rows = self._ready[at] if len(self._indexes) else np.zeros((*wanted.shape, self._ready.shape[1]), dtype=np.int8)
        return torch.from_numpy(np.where(exists[..., None], rows, np.int8(0)))[..., key[1]]


@dataclass(frozen=True)
class PartitionSnapshot:
    """A partition when it was asked for.

    Attributes:
        partition_id: its name.
        keys_mapping: key -> global index.
        global_indexes: of all rows.
        custom_meta: global index -> tags.
        field_name_mapping: field -> column of `production_status`.
        production_status: see `ProductionStatus`.
    """

    partition_id: str
    keys_mapping: dict[str, int]
    global_indexes: set[int]
    custom_meta: dict[int, dict[str, Any]]
    field_name_mapping: dict[str, int]
    production_status: ProductionStatus
