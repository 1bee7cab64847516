"""The command line of the measuring scripts."""

from __future__ import annotations

import sys

import pytest

from bench.report import main
from bench.run import Job, parse
from bench.timing import Measured


def fine(rows: int, rounds: int) -> Measured:
    return Measured("fine", "a system", rows, facts={"rounds": rounds})


def two(rows: int, rounds: int) -> list[Measured]:
    return [fine(rows, rounds), Measured("second", "a system")]


def broken(rows: int, rounds: int) -> Measured:
    raise ValueError("no luck\na trace\nwith details\n")


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["script", *arguments])
    return main({"fine": fine, "two": two, "broken": broken})


def test_what_a_script_prints_the_runner_reads(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status = run(monkeypatch, "two", "fine", "--rows", "3", "--rounds", "2")
    outcome = parse(Job("bench.any"), status, capsys.readouterr().out, "")
    assert [item["claim"] for item in outcome.results] == ["fine", "second", "fine"]
    assert outcome.results[0]["nbytes"] == 3
    assert outcome.results[0]["facts"] == {"rounds": 2}
    assert outcome.failures == {}


def test_one_failure_is_named_and_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status = run(monkeypatch, "broken", "fine")
    assert status == 1
    outcome = parse(Job("bench.any", ("broken", "fine")), status, capsys.readouterr().out, "")
    assert [item["claim"] for item in outcome.results] == ["fine"]
    assert outcome.failures == {"any:broken:fine broken": "ValueError: no luck ... with details"}


def test_without_names_everything_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run(monkeypatch)
    outcome = parse(Job("bench.any"), 1, capsys.readouterr().out, "")
    assert (len(outcome.results), len(outcome.failures)) == (3, 1)


def test_an_unknown_name_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run(monkeypatch, "fien")
    assert "there is no fien" in capsys.readouterr().err
