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
from transferqueue.metadata import BatchMeta, KVBatchMeta
from transferqueue.workers import Broadcast, PerRank
from transferqueue.workers.frames import answer, calls_for_ranks, read_answer, read_call


def rows(count: int = 8, **extra_info: Any) -> BatchMeta:
    schema = {"x": {"dtype": torch.float32, "shape": (4,)}, "j": {"dtype": torch.int64, "is_nested": True}}
    return BatchMeta(np.arange(count), "train", schema, np.ones(count), extra_info, session="s")


def keys() -> KVBatchMeta:
    return KVBatchMeta(keys=["a", "b"], tags=[{"n": 1}, {}], partition_id="train", fields=["x"], session="s")


def test_every_rank_gets_its_piece_and_what_all_share() -> None:
    pieces = rows(10).chunk(4)
    frames = calls_for_ranks("step", [PerRank(pieces), Broadcast(3)], {"name": "ä", "by": Broadcast(keys())}, 4)
    assert frames is not None
    for frame, piece in zip(frames, pieces, strict=True):
        method, args, kwargs = read_call(frame)
        assert method == "step"
        assert args == [piece, 3]
        assert kwargs == {"name": "ä", "by": keys()}


def test_a_call_that_is_the_same_for_all_ranks_is_written_once() -> None:
    frames = calls_for_ranks("step", [Broadcast(rows())], {}, 4)
    assert frames is not None
    assert all(frame is frames[0] for frame in frames)
    assert read_call(frames[3]) == ("step", [rows()], {})


def test_pads_tags_and_plain_user_values_travel_in_frames() -> None:
    padded = rows(5, step=7, name="x", nested={"a": [1, 2.5, None]}).pad_to_divisor(4)
    padded.custom_meta = [{"n": row} for row in range(8)]
    frames = calls_for_ranks("step", [padded], {}, 1)
    assert frames is not None
    assert read_call(frames[0])[1] == [padded]


class Own(BatchMeta):
    __slots__ = ()


@pytest.mark.parametrize(
    "args",
    [
        [],
        [1, "no metadata"],
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
def test_other_calls_are_left_to_ray(args: list[Any]) -> None:
    assert calls_for_ranks("step", args, {}, 2) is None


def test_one_rank_whose_piece_fits_no_frame_is_enough_to_leave_the_call_to_ray() -> None:
    assert calls_for_ranks("step", [PerRank([rows(), rows(tensor=torch.ones(2))])], {}, 2) is None


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
    frame = msgspec.msgpack.encode(["step", [msgspec.msgpack.Ext(9, b"")], {}])
    with pytest.raises(CorruptSegmentError, match="kind 9"):
        read_call(frame)
