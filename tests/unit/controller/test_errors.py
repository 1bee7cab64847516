"""Errors of ranks: what the caller can catch and read."""

from __future__ import annotations

import pickle

import pytest

from transferqueue.controller import WorkerDiedError, WorkerError, WorkerGroupDeadError, WorkerStartError
from transferqueue.controller.errors import worker_error
from transferqueue.errors import FieldNotReadyError, SchemaMismatchError, TransferQueueError


class Awkward(Exception):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code} {text}")
        self.code = code


class Final(Exception):
    def __init_subclass__(cls) -> None:
        raise TypeError("no subclasses")


CAUSES = [
    ValueError("bad value"),
    KeyError("k"),
    OSError(2, "no such file"),
    SchemaMismatchError("sizes", expected=4, found=2, fields=("x",)),
    FieldNotReadyError("not there", fields=("y",), rows=(1, 2)),
    ZeroDivisionError("division by zero"),
    UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"),
]


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: type(cause).__name__)
def test_an_error_is_of_its_own_class_and_of_its_causes(cause: Exception) -> None:
    error = worker_error(cause, "m failed", rank=2, node="n", method="m", remote_traceback="tb")
    again = pickle.loads(pickle.dumps(error))
    for each in (error, again):
        assert isinstance(each, WorkerError)
        assert isinstance(each, TransferQueueError)
        assert isinstance(each, type(cause))
        assert (each.rank, each.node, each.method, each.remote_traceback, str(each)) == (2, "n", "m", "tb", "m failed")
        assert type(each.__cause__) is type(cause)
        assert str(each.cause) == str(cause)
    if isinstance(cause, TransferQueueError):
        assert {name: getattr(again, name) for name in cause.details} == cause.details


def test_a_users_own_error_class_keeps_its_attributes() -> None:
    error = worker_error(Awkward(3, "x"), "m failed", rank=1)
    assert isinstance(error, Awkward)
    assert (error.code, error.rank) == (3, 1)
    with pytest.raises(AttributeError):
        _ = error.nothing


@pytest.mark.parametrize("cause", [Final("x"), None])
def test_a_class_that_cannot_be_combined_stays_the_cause(cause: Exception | None) -> None:
    error = worker_error(cause, "m failed", rank=1)
    assert type(error) is WorkerError
    assert error.cause is cause
    assert error.rank == 1


@pytest.mark.parametrize("kind", [WorkerDiedError, WorkerGroupDeadError, WorkerStartError])
def test_deaths_survive_pickling(kind: type[WorkerDiedError]) -> None:
    error = pickle.loads(pickle.dumps(kind("gone", rank=3, node="n", method="m", reason="killed")))
    assert type(error) is kind
    assert (error.rank, error.node, error.method, error.reason) == (3, "n", "m", "killed")
    assert isinstance(error, RuntimeError)
