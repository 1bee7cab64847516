"""Calls and answers as bytes: what a frame holds comes back as it was, everything else is left to Ray."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensordict import TensorDict

from transferqueue.errors import CorruptSegmentError, LayoutMismatchError
from transferqueue.metadata import BatchMeta, KVBatchMeta, batch_wire
from transferqueue.workers import Broadcast, PerRank
from transferqueue.workers.frames import FRAME_VERSION, CallWriter, answer, read_answer, read_call, worth_a_frame


def rows(count: int = 8, **extra_info: Any) -> BatchMeta:
    schema = {"x": {"dtype": torch.float32, "shape": (4,)}, "j": {"dtype": torch.int64, "is_nested": True}}
    return BatchMeta(np.arange(count), "train", schema, np.ones(count), extra_info, session="s")


def keys() -> KVBatchMeta:
    return KVBatchMeta(keys=["a", "b"], tags=[{"n": 1}, {}], partition_id="train", fields=["x"], session="s")


def test_metadata_and_plain_values_come_back() -> None:
    frame = CallWriter("step").frame([rows(), 3, None], {"name": "ä", "by": keys(), "x": 0.1, "flag": True})
    assert frame is not None
    method, args, kwargs = read_call(frame)
    assert method == "step"
    assert args == [rows(), 3, None]
    assert kwargs == {"name": "ä", "by": keys(), "x": 0.1, "flag": True}


def test_a_value_that_several_ranks_get_is_packed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    packed: list[BatchMeta] = []
    encode = batch_wire.encode
    monkeypatch.setattr(batch_wire, "encode", lambda meta: (packed.append(meta), encode(meta))[1])
    writer, meta = CallWriter("step"), rows()
    frames = [writer.frame([meta, rank], {}) for rank in range(4)]
    assert [read_call(frame)[1] for frame in frames if frame is not None] == [[rows(), rank] for rank in range(4)]
    assert packed == [meta]


def test_pads_tags_and_plain_user_values_travel_in_frames() -> None:
    padded = rows(5, step=7, name="x", nested={"a": [1, 2.5, None]}).pad_to_divisor(4)
    padded.custom_meta = [{"n": row} for row in range(8)]
    frame = CallWriter("step").frame([padded], {})
    assert frame is not None
    assert read_call(frame)[1] == [padded]


def test_calls_without_metadata_are_not_worth_a_frame() -> None:
    assert worth_a_frame([1, rows()], {})
    assert worth_a_frame([], {"by": Broadcast(keys())})
    assert worth_a_frame([PerRank(rows().chunk(2))], {})
    for args in ([], [1, "text"], [PerRank([1, 2])], [PerRank([])], [[rows()]], [Own([1], "train")]):
        assert not worth_a_frame(args, {})


class Own(BatchMeta):
    __slots__ = ()


@pytest.mark.parametrize(
    "args",
    [
        [rows(), torch.ones(2)],
        [rows(), TensorDict({}, [2])],
        [rows(), (1, 2)],
        [rows(), {"a": 1}],
        [rows(), b"bytes"],
        [rows(), np.float64(1.0)],
        [rows(), object()],
        [rows(), 1 << 64],
        [rows(), "\ud800"],
        [rows(tensor=torch.ones(2))],
        [rows(), [rows()]],
        [Own([1], "train")],
    ],
)
def test_what_a_frame_cannot_hold_is_left_to_ray(args: list[Any]) -> None:
    assert CallWriter("step").frame(args, {}) is None
    assert CallWriter("step").frame([], {"value": args[-1]}) is None


@pytest.mark.parametrize("output", [rows(), rows(0), keys(), b"", b"\x01bytes", None, 3, "text", [1], {"a": 1}])
def test_answers_come_back(output: Any) -> None:
    received = answer(output)
    assert isinstance(received, bytes) == isinstance(output, (bytes, BatchMeta, KVBatchMeta))
    assert read_answer(received) == output
    assert type(read_answer(received)) is type(output)


def test_answers_that_fit_no_frame_are_left_to_ray() -> None:
    for output in (rows(tensor=torch.ones(2)), Own([1], "train")):
        assert answer(output) is output
        assert read_answer(output) is output


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60))
def test_bytes_that_are_no_frame_are_refused(data: bytes) -> None:
    with pytest.raises((CorruptSegmentError, LayoutMismatchError)):
        read_call(data)
    if data[:1] != b"\x03":
        with pytest.raises((CorruptSegmentError, LayoutMismatchError)):
            read_answer(data)


def test_a_value_of_an_unknown_kind_is_refused() -> None:
    frame = bytes([FRAME_VERSION]) + msgspec.msgpack.encode(["step", [msgspec.msgpack.Ext(9, b"")], {}])
    with pytest.raises(CorruptSegmentError, match="kind 9"):
        read_call(frame)
