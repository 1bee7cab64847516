"""Blocks of stubs: what a partition's home stores of rows whose payload lies on other nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from transferqueue import _native
from transferqueue.codec.stub_schema import stub_schema
from transferqueue.nodes.names import Names

if TYPE_CHECKING:
    from transferqueue._native import Reservation

_LEAST_NBYTES = 64


class StubPlan:
    """One block for the stubs of one put: the names once, and every field pointing at them.

    Attributes:
        nbytes: size of the block to reserve.
        layouts: one FieldLayout a field.
    """

    def __init__(self, names: Names, schemas: Mapping[str, bytes], copies: tuple[int, ...] = ()) -> None:
        """`schemas`: field -> schema of the payload. `copies`: see `stub_schema`."""
        self._names = names
        self.nbytes = max(names.nbytes, _LEAST_NBYTES)
        self.layouts = [
            _native.FieldLayout(name, _native.DENSE, 0, names.nbytes, 8, 0, stub_schema(schema, copies))
            for name, schema in schemas.items()
        ]

    def write(self, reservation: Reservation) -> None:
        """Copies the names into the block."""
        if self._names.nbytes:
            reservation.copy_in([(0, self._names.ctypes.data, self._names.nbytes)])
