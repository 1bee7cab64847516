"""Session names: which may be one, and what they become on disk."""

from __future__ import annotations

import os

import pytest

from transferqueue.storage.names import SessionPaths, check_session_name, new_session_name


@pytest.mark.parametrize("name", ["a", "train-0", "A.b_c-9", "x" * 64, new_session_name()])
def test_names_that_may_be(name: str) -> None:
    assert check_session_name(name) == name


@pytest.mark.parametrize(
    "name", ["", ".hidden", "a/b", "a b", "x" * 65, "nul\0", "é", "run.ctl", "run.dat", "-x", "..", "a\n"]
)
def test_names_that_may_not(name: str) -> None:
    with pytest.raises(ValueError, match="no session name"):
        check_session_name(name)


def test_a_name_is_a_str() -> None:
    with pytest.raises(TypeError, match="bytes"):
        check_session_name(b"a")  # type: ignore[arg-type]


def test_every_name_on_disk_carries_user_and_session() -> None:
    paths = SessionPaths.of("run")
    stem = f"tq-{os.getuid()}-run"
    assert paths.directory == f"/dev/shm/{stem}"
    assert paths.segment(".ctl") == f"/{stem}.ctl"
    assert paths.payload_file("/data") == f"/data/{stem}.dat"


def test_new_names_differ() -> None:
    assert len({new_session_name() for _ in range(100)}) == 100
