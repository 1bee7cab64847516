"""However processes of a session end: what the others need stays, and when the last is gone nothing stays, or only what
the next cleaning removes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.ends import CLEAN_ENDS, ENDS
from tests.support.nursery import ROOT
from tests.support.sessions import left_behind, wait_for, wait_until_gone
from transferqueue.storage.cleaning import Left, clean
from transferqueue.storage.names import new_session_name

pytestmark = pytest.mark.timeout(120)


class Programs:
    """Starts them, one after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started = 0
        environment = {key: value for key, value in os.environ.items() if not key.startswith("TRANSFERQUEUE_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.ends"],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # the exceptions that they end with
            text=True,
            env={**environment, "PYTHONPATH": str(ROOT)},
        )

    def start(self, name: str, end: str, directory: str | None) -> int:
        """Its number, once it is attached."""
        self.started += 1
        number = self.started
        options = {"storage.size": "4MiB", "storage.index_size": "2MiB", "storage.dir": directory}
        asked = {"name": name, "folder": str(self.folder), "options": options, "id": number, "end": end}
        assert self.process.stdin is not None
        print(json.dumps(asked), file=self.process.stdin, flush=True)
        wait_for((self.folder / f"ready{number}").exists, what="attaching")
        return number

    def end(self, number: int) -> None:
        """Returns when it is gone."""
        pid = int((self.folder / f"ready{number}").read_text())
        (self.folder / f"go{number}").touch()
        wait_for(lambda: not os.path.exists(f"/proc/{pid}"), what="the end of a process")


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    found = Programs(tmp_path_factory.mktemp("ends"))
    yield found
    assert found.process.stdin is not None
    found.process.stdin.close()
    assert found.process.wait(30) == 0


@pytest.mark.parametrize("kind", ENDS)
def test_the_creators_end_leaves_the_session_to_the_others(programs: Programs, kind: str, tmp_path: Path) -> None:
    name = new_session_name()
    creator = programs.start(name, kind, str(tmp_path))
    other = programs.start(name, "return", None)
    programs.end(creator)
    if kind != "close":  # which ends it for everybody
        assert len(left_behind(name)) == 3
        assert len(list(tmp_path.iterdir())) == 1
        assert Left(f"session {name}", "in use") in clean().left
        assert len(left_behind(name)) == 3
    programs.end(other)
    assert left_behind(name) == []
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ENDS)
def test_when_all_have_ended_nothing_stays_that_cleaning_does_not_remove(
    programs: Programs, kind: str, tmp_path: Path
) -> None:
    kept, name = new_session_name(), new_session_name()
    keeper = programs.start(kept, "return", None)
    numbers = [programs.start(name, kind, str(tmp_path)) for _ in range(3)]
    for number in numbers:
        programs.end(number)
    if kind in CLEAN_ENDS:
        assert left_behind(name) == []
    else:
        files = left_behind(kept)
        done = clean()
        # Unless another test, which cleans up at the same time, was quicker.
        assert {removed.what for removed in done.removed if name in removed.what} <= {f"session {name}"}
        assert not [removed for removed in done.removed if kept in removed.what]
        assert left_behind(kept) == files
        wait_until_gone(name)
    assert not list(tmp_path.iterdir())
    programs.end(keeper)
    assert left_behind(kept) == []
