"""What a transport of payload does, whatever it is made of (Flight here; RDMA or GPU fabrics would be others)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from transferqueue.nodes.place import NodePlace

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class PayloadRequest:
    """Rows x fields that one node is asked for.

    Attributes:
        partition: of the source's store.
        rows: int64 [n], indexes in it, each once; what comes back is in this order.
        fields: names.
        blocks: int64 [n], the id of the block that each row must lie in (`Resolved.block_id`), for rows that may be
            overwritten or moved; empty: wherever they lie.
    """

    partition: str
    rows: Rows
    fields: tuple[str, ...]
    blocks: Rows = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def to_parts(self) -> list[Any]:
        """What a message carries of it."""
        return [self.partition, self.rows, list(self.fields), self.blocks]

    @classmethod
    def of_parts(cls, parts: Any) -> PayloadRequest:
        """Raises ValueError for what is none."""
        match parts:
            case [str() as partition, np.ndarray() as rows, list() as fields, np.ndarray() as blocks]:
                whole = all(type(name) is str for name in fields) and len(set(fields)) == len(fields)
                whole = whole and rows.dtype == blocks.dtype == np.int64 and rows.ndim == blocks.ndim == 1
                if whole and len(blocks) in (0, len(rows)):
                    return cls(partition, rows, tuple(fields), blocks)
        raise ValueError("no request for payload")


@dataclass(frozen=True)
class FieldDescription:
    """One field of the rows of a request, in their order.

    Attributes:
        types: (kind, schema, bytes of a dense row) of `FieldLayout`, the distinct ones.
        which: int64 [n], number of each row's type.
        sizes: int64 [n], bytes of each row.
    """

    types: tuple[tuple[int, bytes, int], ...]
    which: Rows
    sizes: Rows

    @property
    def nbytes(self) -> int:
        return int(self.sizes.sum())


@dataclass(frozen=True)
class PayloadDescription:
    """Field -> what a block has to know of its rows before their bytes come."""

    fields: Mapping[str, FieldDescription]

    @property
    def nbytes(self) -> int:
        """Of all rows and fields."""
        return sum(each.nbytes for each in self.fields.values())


class Destination(Protocol):
    """Room for the rows of one request, made when their sizes are known. Used by several threads at once.

    Bytes of a field are counted as the source has them: the rows of the request one after another, in its order. Where
    they go in a block that has rows of several sources is the destination's affair.
    """

    @property
    def nbytes(self) -> int:
        """What it waits for, all fields together."""
        ...

    def write(self, field: str, offset: int, data: Any) -> None:
        """Copies `data` (buffer protocol) to bytes `offset` and on of the field. The same bytes may be written again.

        Raises:
            ValueError: the field does not have them.
        """

    def windows(self, field: str, offset: int, nbytes: int) -> Sequence[npt.NDArray[np.uint8]]:
        """Writable memory for bytes `offset` and on of the field, in order, for a transport that can receive there.

        Raises:
            ValueError: the field does not have them.
        """
        ...


@dataclass(frozen=True)
class PullReport:
    """What a pull did.

    Attributes:
        nbytes: payload bytes written.
        messages: how many they came in.
        streams: how many streams, all attempts counted.
    """

    nbytes: int
    messages: int
    streams: int


class Transport(Protocol):
    """Between this process and any node's agent. Thread-safe."""

    def describe(self, source: NodePlace, what: PayloadRequest, *, until_s: float | None = None) -> PayloadDescription:
        """Layouts and sizes, no bytes.

        Raises:
            GoneError: a row or field of it is not there, or not in its block any more: locate it again.
            NodeUnreachableError: no answer until `until_s` (monotonic). DataLostError: the node is known to be lost.
            CorruptSegmentError: an answer that contradicts itself.
        """
        ...

    def pull(
        self, source: NodePlace, what: PayloadRequest, into: Destination, *, until_s: float | None = None
    ) -> PullReport:
        """The bytes, each copied once from where the network left it. When it returns everything is written, when it
        raises some is; nothing is written afterwards. Raises as `describe`.
        """
        ...

    def close(self) -> None:
        """Ends connections that are not in use; later calls make new ones."""
