"""One block that is filled with rows of several sources, in the reader's order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from torch.utils import dlpack

from transferqueue._native import DENSE
from transferqueue.codec.encoded_field import EncodedField, place

if TYPE_CHECKING:
    from transferqueue._native import FieldLayout, Reservation

Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True)
class PulledField:
    """What a block has to know of a field before its bytes come.

    Attributes:
        kind: of `FieldLayout`.
        schema: of the rows.
        sizes: int64 [rows], bytes of each.
        row_nbytes: of dense rows.
    """

    kind: int
    schema: bytes
    sizes: Offsets
    row_nbytes: int = 0


class PullBlock:
    """The rows of one pull: planned when all sizes are known, then filled by any number of threads.

    Args:
        fields: name -> its rows, in the order of the block.

    Attributes:
        nbytes: of the block to reserve.
        payload_nbytes: of the rows without what stands between them.
    """

    def __init__(self, fields: Mapping[str, PulledField]) -> None:
        self._fields: dict[str, EncodedField] = {}
        self._starts: dict[str, Offsets] = {}
        self._whole: npt.NDArray[np.uint8] | None = None
        for name, field in fields.items():
            starts = np.zeros(len(field.sizes) + 1, dtype=np.int64)
            np.cumsum(field.sizes, out=starts[1:])
            self._starts[name] = starts
            self._fields[name] = EncodedField(
                name,
                field.schema,
                data_nbytes=int(starts[-1]),
                row_nbytes=field.row_nbytes,
                offsets=None if field.kind == DENSE else starts,
            )
        self.nbytes = place(list(self._fields.values()))
        self.payload_nbytes = sum(field.data_nbytes for field in self._fields.values())

    def begin(self, reservation: Reservation) -> None:
        """The room is there."""
        writes = [write for field in self._fields.values() for write in field.placed_writes()]
        if writes:
            reservation.copy_in(writes)
        self._whole = dlpack.from_dlpack(reservation.writable(0, self.nbytes)).numpy()

    def end(self) -> list[FieldLayout]:
        """Nothing more comes: what is to be published. The room is not touched from now on."""
        self._whole = None
        return [field.layout() for field in self._fields.values()]

    def part(self, rows: Offsets) -> PullPart:
        """Where the rows at these positions of the block go that one source sends, in the order in which it does."""
        return PullPart(self, rows)

    def payload_nbytes_of(self, rows: Offsets) -> int:
        """Bytes of those rows, all fields together."""
        return int(sum((starts[rows + 1] - starts[rows]).sum() for starts in self._starts.values()))

    def places(self, field: str, rows: Offsets) -> tuple[Offsets, Offsets, Offsets]:
        """(begin in what the source sends of the field, begin in the block, nbytes) of stretches, merged."""
        starts = self._starts[field]
        sizes = starts[rows + 1] - starts[rows]
        sent = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum(sizes, out=sent[1:])
        targets = starts[rows]
        if not len(rows):
            return sent[:0], targets, sizes
        cuts = np.flatnonzero(targets[1:] != targets[:-1] + sizes[:-1]) + 1
        firsts = np.concatenate((np.zeros(1, dtype=np.int64), cuts))
        ends = np.concatenate((cuts, np.array([len(rows)], dtype=np.int64)))
        return sent[firsts], targets[firsts] + self._fields[field].data_offset, sent[ends] - sent[firsts]

    def fill(self, begin: int, data: npt.NDArray[np.uint8]) -> None:
        whole = self._whole
        if whole is None:
            raise RuntimeError("the block is finished")
        whole[begin : begin + len(data)] = data

    def window(self, begin: int, nbytes: int) -> npt.NDArray[np.uint8]:
        whole = self._whole
        if whole is None:
            raise RuntimeError("the block is finished")
        return whole[begin : begin + nbytes]


class PullPart:
    """The rows of one source in a `PullBlock`: the `Destination` of a transport.

    Attributes:
        nbytes: of the rows.
    """

    def __init__(self, block: PullBlock, rows: Offsets) -> None:
        self._block = block
        self._rows = rows
        self._places: dict[str, tuple[Offsets, Offsets, Offsets]] = {}
        self.nbytes = block.payload_nbytes_of(rows)

    def write(self, field: str, offset: int, data: Any) -> None:
        """Copies bytes of a field, `offset` counted in what the source sends of it: its rows one after another."""
        source = np.frombuffer(data, dtype=np.uint8)
        at = 0
        for window in self.windows(field, offset, len(source)):
            window[:] = source[at : at + len(window)]
            at += len(window)

    def windows(self, field: str, offset: int, nbytes: int) -> Sequence[npt.NDArray[np.uint8]]:
        """Writable memory for these bytes, in order.

        Raises:
            ValueError: the source sends more than it said.
        """
        found = self._places.get(field)
        if found is None:
            found = self._places[field] = self._block.places(field, self._rows)
        sent, targets, sizes = found
        end = offset + nbytes
        if offset < 0 or nbytes < 0 or end > (int(sent[-1] + sizes[-1]) if len(sent) else 0):
            raise ValueError(f"field {field!r}: bytes {offset} to {end} were not announced")
        windows = []
        first = int(np.searchsorted(sent, offset, side="right")) - 1
        while offset < end:
            skip = offset - int(sent[first])
            take = min(int(sizes[first]) - skip, end - offset)
            if take > 0:
                windows.append(self._block.window(int(targets[first]) + skip, take))
                offset += take
            first += 1
        return windows
