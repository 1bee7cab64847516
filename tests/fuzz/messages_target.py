"""Calls between nodes and their answers, requests for payload and what describes it."""

from __future__ import annotations

import contextlib

import numpy as np

from tests.fuzz.edits import Input, edited, edits_of
from tests.fuzz.metadata_target import MESSAGES
from tests.fuzz.targets import Target
from transferqueue.errors import CorruptSegmentError, FieldNotReadyError, LayoutMismatchError, TransferQueueError
from transferqueue.metadata import BatchMeta, batch_wire
from transferqueue.nodes.envelopes import Request, answer_of_error, answer_of_value, read_answer
from transferqueue.nodes.transport.payload_streams import read_ticket, ticket_of
from transferqueue.nodes.transport.protocol import PayloadRequest
from transferqueue.nodes.transport.received import read_description

_CALL, _ANSWER, _TICKET = range(3)
_WHAT = PayloadRequest("\x01payload", np.arange(1 << 50, (1 << 50) + 6), ("x", "j"), np.array([4] * 5 + [9]))
_KNOWN = [["x", [[1, b"\x01dense", 16]], np.zeros(6, np.int64), np.full(6, 16)]]
_KNOWN.append(["j", [[2, b"\x01ragged", 0], [1, b"", 3]], np.array([0, 0, 0, 0, 0, 1]), np.array([5, 0, 7, 9, 1, 3])])


def _frames() -> list[tuple[int, bytes]]:
    batch = batch_wire.decode(BatchMeta, MESSAGES[1][1])
    plain = {"a": (1, [2, {3: b"x"}]), "s": {1, "b"}, "big": 2**70, "n": np.float32(1), "e": np.zeros((2, 0))}
    calls = [plain, {"meta": batch, "rows": np.array([5, 1, 1 << 40])}]
    error = FieldNotReadyError("not yet", fields=("x",), rows=(1, 2))
    return [
        *((_CALL, Request("m", args, bytes(16), 2.5, "pid 1").encode()) for args in calls),
        (_ANSWER, answer_of_value(_KNOWN)),
        (_ANSWER, answer_of_error(error)),
        (_TICKET, ticket_of(_WHAT, 1, 2, 1 << 20)),
    ]


FRAMES = _frames()


def run(data: bytes) -> None:
    given = Input(data)
    kind, frame = FRAMES[given.number() % len(FRAMES)]
    while not given.empty:
        frame = edited(frame, given)
    try:
        if kind == _CALL:
            request = Request.decode(frame)
            assert len(request.request_id) == 16
            with contextlib.suppress(TypeError):  # MessagePack has times, which we do not send
                assert Request.decode(request.encode()).method == request.method
        elif kind == _TICKET:
            what, part, parts, chunk_nbytes = read_ticket(frame)
            assert part < parts
            assert chunk_nbytes > 0
            assert len(what.blocks) in (0, len(what.rows))
        else:
            _, value = read_answer(frame)
            described = read_description(value, _WHAT)
            assert described.nbytes >= 0
            assert all(len(field.sizes) == 6 for field in described.fields.values())
    except (CorruptSegmentError, LayoutMismatchError, ValueError):
        return
    except (TransferQueueError, LookupError, NotImplementedError, TypeError, RuntimeError):
        assert kind == _ANSWER  # what it says that the handler raised, whatever the damage made of its text


def target() -> Target:
    seeds = [bytes([number]) + tail for number in range(len(FRAMES)) for tail in edits_of(40, seed=number)]
    return Target("messages", run, seeds)
