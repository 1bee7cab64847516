"""Calls of worker methods and their answers, as byte strings between controller and ranks."""

from __future__ import annotations

from tests.fuzz.edits import Input, edited, edits_of
from tests.fuzz.metadata_target import MESSAGES
from tests.fuzz.targets import Target
from transferqueue.errors import CorruptSegmentError, LayoutMismatchError
from transferqueue.metadata import BatchMeta, KVBatchMeta, batch_wire, kv_wire
from transferqueue.workers.frames import CallWriter, answer, read_answer, read_call


def _frames() -> list[tuple[bool, bytes]]:
    batch = batch_wire.decode(BatchMeta, MESSAGES[1][1])
    keyed = kv_wire.decode(KVBatchMeta, MESSAGES[3][1])
    calls = [
        CallWriter("step").frame([batch, 3, None], {"by": keyed, "rate": 0.5}),
        CallWriter("go").frame([keyed], {}),
    ]
    return [*((True, call) for call in calls if call is not None), (False, answer(batch)), (False, answer(b"bytes"))]


FRAMES = _frames()


def run(data: bytes) -> None:
    given = Input(data)
    is_call, frame = FRAMES[given.number() % len(FRAMES)]
    while not given.empty:
        frame = edited(frame, given)
    try:
        if not is_call:
            read_answer(frame)
            return
        method, args, kwargs = read_call(frame)
    except (CorruptSegmentError, LayoutMismatchError):
        return
    assert type(method) is str
    assert type(args) is list
    assert all(type(name) is str for name in kwargs)


def target() -> Target:
    seeds = [bytes([number]) + tail for number in range(len(FRAMES)) for tail in edits_of(40, seed=number)]
    return Target("frames", run, seeds)
