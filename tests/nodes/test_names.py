"""Names, their ranges, stubs of them, and the lock that lets one process of a node pull them."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from transferqueue.codec.schema import STUB, read_schema, schema_bytes, schema_dict
from transferqueue.codec.stub_schema import PREFIX, is_stub, payload_schema, read_stub, stub_schema
from transferqueue.errors import CorruptSegmentError, TransferTimeoutError
from transferqueue.nodes.names import MOST_NODES, first_row, ordinal_of, ordinals_of, runs_of
from transferqueue.nodes.pull_lock import pull_lock

pytestmark = pytest.mark.timeout(60)


def names(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.int64)


def test_the_ordinal_is_in_the_name() -> None:
    assert ordinal_of(first_row(3)) == 3
    assert ordinal_of(first_row(4) - 1) == 3
    assert ordinals_of(names(5, first_row(2) + 7)).tolist() == [0, 2]
    assert first_row(MOST_NODES - 1) > 0
    for wrong in (-1, MOST_NODES):
        with pytest.raises(ValueError, match="at most"):
            first_row(wrong)


def test_runs() -> None:
    assert runs_of(names()) == []
    assert runs_of(names(5, 3, 4, 4, 9)) == [(3, 6), (9, 10)]
    assert runs_of(names(3, 4, 5)) == [(3, 6)]
    assert runs_of(names(3, 5, 4, 6)) == runs_of(names(3, 3, 4, 5, 6)) == [(3, 7)]


def test_a_stub_says_what_its_payload_is() -> None:
    dense = schema_bytes("dense", "int64", (3,))
    raw = stub_schema(dense, (4, 5))
    assert is_stub(raw)
    assert not is_stub(dense)
    assert read_stub(raw) == ((4, 5), dense)
    assert payload_schema(raw) == payload_schema(dense) == dense
    assert schema_dict(raw) == schema_dict(dense)
    assert read_schema(raw).form == STUB
    assert read_schema(raw).key == read_schema(stub_schema(dense, (4, 5))).key != read_schema(stub_schema(dense)).key
    with pytest.raises(ValueError, match="stub"):
        stub_schema(raw)


@pytest.mark.parametrize("body", [b"", b"\x00", b"\x92\x90\xc0", b"\x92\x91\xff\xc4\x00"])
def test_a_damaged_stub_is_refused(body: bytes) -> None:
    with pytest.raises(CorruptSegmentError):
        read_schema(PREFIX + body)


def test_locks_of_the_same_names_exclude_each_other(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    with pull_lock(path, names(1, 2, 3), None) as waited:
        assert not waited
        with pull_lock(path, names(4, 9), None) as waited:
            assert not waited
        with pytest.raises(TransferTimeoutError), pull_lock(path, names(3, 4), time.monotonic() + 0.02):
            pass
        threading.Timer(0.1, lambda: None).start()
    order: list[str] = []

    def second() -> None:
        with pull_lock(path, names(2), None) as waited:
            order.append(f"second {waited}")

    with pull_lock(path, names(*range(0, 2000, 2)), None):
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.05)
        order.append("first")
    thread.join()
    assert order == ["first", "second True"]


def _hold(path: str, ready: object, forked: bool) -> None:
    with pull_lock(path, names(7), None):
        if forked and os.fork() == 0:
            time.sleep(20)
            os._exit(0)
        ready.set()  # type: ignore[attr-defined]
        time.sleep(20)


def test_the_lock_goes_with_its_holder(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    holder = context.Process(target=_hold, args=(path, ready, False))
    holder.start()
    assert ready.wait(20)
    with pytest.raises(TransferTimeoutError), pull_lock(path, names(7), time.monotonic() + 0.02):
        pass
    holder.kill()
    with pull_lock(path, names(7), time.monotonic() + 20):
        pass
    holder.join()


def test_a_forked_child_does_not_keep_the_lock(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    read, write = os.pipe()
    with pull_lock(path, names(7), None):
        child = os.fork()
        if child == 0:
            os.close(write)
            os.read(read, 1)
            os._exit(0)
    os.close(read)
    try:
        with pull_lock(path, names(7), time.monotonic() + 20):
            pass
    finally:
        os.close(write)
        os.waitpid(child, 0)
