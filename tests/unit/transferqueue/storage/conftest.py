from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def names_of_our_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Which other tests, that clean up at the same time, do not take for theirs. After `tmp_path`, which asks, too."""
    uid = 7_000_000 + os.getpid()
    monkeypatch.setattr(os, "getuid", lambda: uid)
    yield
    assert [entry for entry in os.listdir("/dev/shm") if f"tq-{uid}-" in entry] == []
