"""Errors read well, are caught by the built-in one expects, and keep their facts across processes."""

from __future__ import annotations

import pickle

import pytest

import transferqueue as tq
from transferqueue import errors

BUILTIN_BASE = {
    errors.KeyNotFoundError: KeyError,
    errors.FieldNotReadyError: KeyError,
    errors.StaleMetadataError: KeyError,
    errors.PartitionNotFoundError: KeyError,
    errors.SchemaMismatchError: ValueError,
    errors.SessionNotFoundError: LookupError,
    errors.LayoutMismatchError: ValueError,
    errors.CorruptSegmentError: OSError,
    errors.CorruptCheckpointError: OSError,
    errors.DataLostError: KeyError,
    errors.TransferTimeoutError: TimeoutError,
    errors.StorageFullError: MemoryError,
    errors.ClosedError: RuntimeError,
    errors.PickleNotAllowedError: ValueError,
    errors.RowDecodeError: ValueError,
    errors.UntrustedFileError: PermissionError,
    errors.SystemRefusedError: OSError,
    errors.MemoryRefusedError: MemoryError,
}


@pytest.mark.parametrize("cls", [errors.TransferQueueError, *BUILTIN_BASE], ids=lambda cls: cls.__name__)
def test_is_a_name_of_the_package(cls: type[errors.TransferQueueError]) -> None:
    assert getattr(tq, cls.__name__) is cls


@pytest.mark.parametrize("cls", BUILTIN_BASE, ids=lambda cls: cls.__name__)
def test_caught_by_base_and_builtin(cls: type[errors.TransferQueueError]) -> None:
    for expected in (errors.TransferQueueError, BUILTIN_BASE[cls]):
        with pytest.raises(expected):
            raise cls("asked for 'a'")


@pytest.mark.parametrize("cls", BUILTIN_BASE, ids=lambda cls: cls.__name__)
def test_message_is_shown_as_written_and_survives_pickle_with_details(cls: type[errors.TransferQueueError]) -> None:
    message = "asked for 'a'\nthere is 'b'"
    error = cls(message, note={"tried": 3})
    back = pickle.loads(pickle.dumps(error, protocol=5))
    for each in (error, back):
        assert type(each) is cls
        assert str(each) == message
        assert each.note == {"tried": 3}  # type: ignore[attr-defined]
    assert vars(back) == vars(error)


def test_declared_details_have_defaults_and_keep_values_across_pickle() -> None:
    plain = errors.StorageFullError("full")
    assert (plain.resource, plain.wanted_bytes) == ("payload", None)
    full = errors.StorageFullError("full", resource="index", wanted_bytes=10, free_bytes=3)
    back = pickle.loads(pickle.dumps(full))
    assert (back.resource, back.wanted_bytes, back.free_bytes, back.live_bytes) == ("index", 10, 3, None)
    assert errors.KeyNotFoundError("k", keys=("a", "b")).keys == ("a", "b")


def test_a_detail_cannot_replace_a_method() -> None:
    error = errors.ClosedError("closed", with_traceback="x")
    assert callable(error.with_traceback)
    assert error.details["with_traceback"] == "x"


def test_details_are_found_on_rays_dual_exception() -> None:
    """Ray re-raises with a subclass that forwards missing attributes to the cause; a default must not hide them."""
    pytest.importorskip("ray")
    from ray.exceptions import RayTaskError

    cause = errors.KeyNotFoundError("no such key", keys=("a",), partition_id="p")
    dual = RayTaskError("f", "trace", cause, proctitle="t", pid=1, ip="127.0.0.1").as_instanceof_cause()
    assert isinstance(dual, errors.KeyNotFoundError)
    assert dual.keys == ("a",)
    assert dual.partition_id == "p"


def test_name_some_bounds_what_it_prints() -> None:
    assert errors.name_some(["a", "b"]) == "'a', 'b'"
    assert errors.name_some(range(10), limit=3) == "0, 1, 2 and 7 more"
    assert len(errors.name_some(["k" * 10_000])) < 120
