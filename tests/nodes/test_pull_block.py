"""A block that several sources fill."""

from __future__ import annotations

import numpy as np
import pytest

from transferqueue._native import DENSE, RAGGED
from transferqueue.codec.schema import schema_bytes
from transferqueue.errors import CorruptSegmentError
from transferqueue.nodes.described import Request, alike, check
from transferqueue.nodes.pull_block import PullBlock
from transferqueue.nodes.transport.protocol import FieldDescription, PayloadRequest

INT = schema_bytes("dense", "int64", ())
FLOAT = schema_bytes("dense", "float64", ())
TEXT = schema_bytes("values")


class Room:
    """A reservation that keeps what is written to it."""

    def __init__(self, nbytes: int) -> None:
        self.data = np.zeros(nbytes, dtype=np.uint8)

    def copy_in(self, writes: list[tuple[int, int, int]]) -> None:
        import ctypes

        for offset, address, nbytes in writes:
            self.data[offset : offset + nbytes] = np.frombuffer(ctypes.string_at(address, nbytes), dtype=np.uint8)

    def writable(self, offset: int, nbytes: int) -> object:
        import torch

        return torch.from_numpy(self.data[offset : offset + nbytes]).__dlpack__()


def request(ordinal: int, positions: list[int]) -> Request:
    rows = np.array(positions, dtype=np.int64)
    return Request(ordinal, PayloadRequest("p", rows + 100 * ordinal, ("x", "t")), rows)


def described(sizes: list[int], which: list[int] | None = None) -> dict[str, FieldDescription]:
    rows = len(sizes)
    kinds = [(DENSE, INT, 8), (DENSE, FLOAT, 8)][: 1 + max(which or [0])]
    numbers = np.array(which or [0] * rows, dtype=np.int64)
    return {
        "x": FieldDescription(kinds, numbers, np.full(rows, 8, dtype=np.int64)),
        "t": FieldDescription([(RAGGED, TEXT, 0)], np.zeros(rows, dtype=np.int64), np.array(sizes, dtype=np.int64)),
    }


def test_rows_of_two_sources_come_to_lie_in_the_reader_s_order() -> None:
    requests = [request(1, [0, 2, 3]), request(2, [1, 4])]
    ((some, fields),) = alike(requests, [described([1, 2, 3]), described([4, 5])], ["x", "t"])
    assert fields["t"].sizes.tolist() == [1, 4, 2, 3, 5]
    block = PullBlock(fields)
    room = Room(block.nbytes)
    block.begin(room)  # type: ignore[arg-type]
    texts = {1: b"a" + b"cc" + b"ddd", 2: b"bbbb" + b"eeeee"}
    for asked, _ in some:
        part = block.part(np.sort(asked.positions))
        numbers = asked.positions.astype(np.int64).tobytes()
        for at in range(0, len(numbers), 5):  # cut anywhere
            part.write("x", at, numbers[at : at + 5])
        part.write("t", 0, texts[asked.ordinal])
        with pytest.raises(ValueError, match="announced"):
            part.write("t", 1, texts[asked.ordinal])
    layouts = {layout.name: layout for layout in block.end()}
    x, t = layouts["x"], layouts["t"]
    assert room.data[x.data_offset : x.data_offset + 40].view(np.int64).tolist() == [0, 1, 2, 3, 4]
    assert room.data[t.data_offset : t.data_offset + 15].tobytes() == b"abbbbccdddeeeee"
    assert room.data[t.offsets_offset : t.offsets_offset + 48].view(np.int64).tolist() == [0, 1, 5, 7, 10, 15]
    assert block.payload_nbytes == 55
    with pytest.raises(RuntimeError):
        block.fill(0, room.data[:1])


def test_rows_of_different_types_go_into_blocks_of_their_own() -> None:
    requests = [request(1, [0, 2, 3]), request(2, [1, 4])]
    classes = list(alike(requests, [described([1, 2, 3], [0, 1, 0]), described([4, 5], [1, 1])], ["x", "t"]))
    found = {fields["x"].schema: sorted(np.concatenate([r.positions for r, _ in some])) for some, fields in classes}
    assert found == {INT: [0, 3], FLOAT: [1, 2, 4]}
    for some, fields in classes:
        assert len(fields["t"].sizes) == sum(len(asked.positions) for asked, _ in some)


@pytest.mark.parametrize(
    "field",
    [
        FieldDescription([], np.zeros(2, dtype=np.int64), np.zeros(2, dtype=np.int64)),
        FieldDescription([(DENSE, INT, 8)], np.array([0, 1]), np.array([8, 8])),
        FieldDescription([(DENSE, INT, 8)], np.array([0, 0]), np.array([8, 9])),
        FieldDescription([(RAGGED, TEXT, 0)], np.array([0, 0]), np.array([8, -1])),
        FieldDescription([(RAGGED, TEXT, 0)], np.array([0, 0]), np.array([8])),
        FieldDescription([(77, TEXT, 0)], np.array([0, 0]), np.array([8, 8])),
        FieldDescription([(RAGGED, b"\xc1tq-stub\x01", 0)], np.array([0, 0]), np.array([8, 8])),
        FieldDescription([(RAGGED, b"rubbish", 0)], np.array([0, 0]), np.array([8, 8])),
    ],
)
def test_what_cannot_be_is_refused(field: FieldDescription) -> None:
    with pytest.raises(CorruptSegmentError):
        check(field, "x", 2)
