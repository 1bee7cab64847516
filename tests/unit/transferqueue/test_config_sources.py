"""Where a value comes from: precedence as the configuration has it, told for creators, joiners and adopters."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

import transferqueue as tq
from tests.support.sessions import SIZE, Forked, embedded, served
from transferqueue.cli import main
from transferqueue.config import known_keys
from transferqueue.config_sources import Given
from transferqueue.storage.names import new_session_name

pytestmark = pytest.mark.timeout(60)


def test_each_source_by_name_the_first_one_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STORAGE__SIZE", "READ__MODE", "PUT__TIMEOUT_S"):
        monkeypatch.setenv(f"TRANSFERQUEUE_{name}", {"READ__MODE": "copy"}.get(name, "1048576"))
    given = Given.by({"storage": {"size": "8MiB"}, "read.mode": "cow"}, {"storage.size": "16MiB"})
    assert given.values["storage.size"] == "16MiB"
    assert given.sources == {
        "storage.size": "init argument",
        "read.mode": "configuration mapping",
        "put.timeout_s": "environment variable TRANSFERQUEUE_PUT__TIMEOUT_S",
    }
    assert given.values.keys() == given.sources.keys()
    whole = given.of_creator()
    assert list(whole) == known_keys()
    assert whole["allow_pickle"] == "default"
    assert Given.by(tq.Config(), {}).sources["storage.size"] == "Config object"


def test_an_unknown_key_is_refused() -> None:
    with pytest.raises(ValueError, match=r"storage\.size"):
        Given.by(None, {"storage.sise": 1})


def shown(capsys: Any, *arguments: str) -> dict[str, list[str]]:
    assert main(["config", *arguments]) == 0
    out = capsys.readouterr().out
    return {line.split("\t")[0]: line.split("\t")[1:] for line in out.splitlines()}


def test_without_a_session_what_init_would_create(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSFERQUEUE_STORAGE__SIZE", "4MiB")
    rows = shown(capsys)
    assert rows["storage.size"] == ["4.0 MiB", "session", "environment variable TRANSFERQUEUE_STORAGE__SIZE"]
    assert rows["read.mode"] == ["'cow'", "process", "default"]
    assert set(known_keys()) <= set(rows)
    monkeypatch.setenv("TRANSFERQUEUE_STORAGE__SIZE", "four")
    assert main(["config"]) == 1
    assert "storage.size" in capsys.readouterr().err


def test_of_a_session_with_what_its_creator_had_it_from(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSFERQUEUE_READ__MODE", "shared")
    with embedded(**{"storage.size": "32MiB"}) as session:
        assert session.config_sources["storage.size"] == "init argument"
        rows = shown(capsys)  # the environment names it
        assert any(session.name in line for line in rows)
        assert rows["storage.size"] == ["32.0 MiB", "session", "session: init argument"]
        assert rows["storage.populate"] == ["0 B", "session", "session: default"]
        assert rows["controller.sampler"] == ["'SequentialSampler'", "session", "session: default"]
        assert rows["read.mode"] == ["'shared'", "process", "environment variable TRANSFERQUEUE_READ__MODE"]
        assert main(["config", "--session", session.name, "--json"]) == 0
        plain = json.loads(capsys.readouterr().out)
        assert plain["session"] == session.name
        assert (plain["creator_pid"], plain["adopter_pid"]) == (os.getpid(), None)
        assert plain["values"]["storage.size"] == {
            "value": 32 << 20,
            "of": "session",
            "source": "session: init argument",
        }
        assert list(plain["values"]) == known_keys()
    assert main(["config", "--session", new_session_name()]) == 1


def test_a_joiner_tells_its_own_choice_from_the_sessions() -> None:
    with served() as name:
        session = tq.init({"read.mode": "copy"}, session=name)
        try:
            assert session.config_sources["read.mode"] == "configuration mapping"
            assert session.config_sources["storage.size"].startswith("session: ")
            assert session.config.to_flat().keys() == session.config_sources.keys()
        finally:
            session.close()


@pytest.mark.alone
def test_an_adopted_session_says_so(capsys: Any) -> None:
    def make(connection: Any) -> None:
        tq.init(session=connection.recv(), **{"storage.size": SIZE})
        connection.send("ready")
        connection.recv()

    name = new_session_name()
    child = Forked(make)
    child.say(name)
    child.hear()
    child.kill()
    with tq.init(session=name) as session:
        assert session.config_sources["storage.size"] == "adopted session: init argument"
        rows = shown(capsys, "--session", name)
        assert rows["storage.size"] == ["64.0 MiB", "session", "adopted session: init argument"]
        assert any(f"adopted by pid {os.getpid()}" in line for line in rows)
