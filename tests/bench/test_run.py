"""The runner: which jobs, what it makes of their ends, and what it writes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import run
from bench.run import JOBS, PEER_PYTHON, Job, Outcome, chosen_jobs, parse, run_job
from tests.bench.results import result

ROOT = Path(__file__).parents[2]


def test_every_job_is_a_file_and_has_its_own_label() -> None:
    for job in JOBS:
        assert (ROOT / (job.module.replace(".", "/") + ".py")).exists(), job.label
    labels = [job.label for job in JOBS]
    assert len(set(labels)) == len(labels)


def test_the_quick_run_has_no_peer_that_needs_ray_and_fewer_rounds() -> None:
    quick = chosen_jobs(True, [])
    assert {job.module for job, _ in quick if "baselines" in job.module} == {"bench.baselines.raw_shm"}
    assert all(0 < rounds <= job.rounds for job, rounds in quick)
    assert len(quick) < len(chosen_jobs(False, [])) == len(JOBS)


def test_only_picks_by_parts_of_labels() -> None:
    assert [job.label for job, _ in chosen_jobs(False, ["raw_shm:put_get_big", "get_alone"])] == [
        "baselines.raw_shm:put_get_big",
        "get_alone",
    ]


def test_a_job_that_dies_has_failed_also_after_results() -> None:
    job = Job("bench.put_get")
    printed = "RESULT " + json.dumps([result("put_get_w")]) + "\n"
    assert parse(job, 0, printed, "") == Outcome([result("put_get_w")], {})
    died = parse(job, -9, printed, "some words\nlast words\n")
    assert [item["claim"] for item in died.results] == ["put_get_w"]
    assert died.failures == {"put_get": "ended with -9; its last words: last words"}
    assert "it said nothing" in parse(job, 0, "", "").failures["put_get"]


def test_a_job_that_takes_too_long_is_a_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sleeper = tmp_path / "python"
    sleeper.write_text("#!/bin/sh\nexec sleep 60\n")
    sleeper.chmod(0o700)
    monkeypatch.setattr(run, "JOB_TIMEOUT_S", 0.2)
    outcome = run_job(Job("bench.put_get", python=sleeper), 1)
    assert outcome == Outcome([], {"put_get": "took more than 0.2 s"})


def test_a_missing_environment_of_a_peer_is_a_failure_with_advice(tmp_path: Path) -> None:
    outcome = run_job(Job("bench.baselines.transferqueue_peer", python=tmp_path / "python"), 1)
    assert "make peers" in outcome.failures["baselines.transferqueue_peer"]


def test_a_full_run_writes_record_and_page_and_fails_with_what_failed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written: list[Any] = []
    outcomes = {
        "bench.put_get": Outcome([result("put_get_w", put_s=0.004, get_s=0.001, memcpy_s=0.005)], {}),
        "bench.small": Outcome([], {"small": "no luck"}),
    }
    monkeypatch.setattr(run, "JOBS", [Job(module, quick_rounds=1) for module in outcomes])
    monkeypatch.setattr(run, "run_job", lambda job, rounds: outcomes[job.module])
    monkeypatch.setattr(run, "HERE", tmp_path)
    monkeypatch.setattr(run, "write", written.append)
    monkeypatch.setattr(sys, "argv", ["run"])
    assert run.main() == 1
    record = json.loads((tmp_path / "results" / "latest.json").read_text())
    assert [item["claim"] for item in record["results"]] == ["put_get_w"]
    assert record["failed"] == {"small": "no luck"}
    assert record["seconds_of_jobs"].keys() == {"put_get", "small"}
    assert written == [record]
    assert "FAILED small: no luck" in capsys.readouterr().err

    # The quick run leaves record and page alone.
    del outcomes["bench.small"]
    monkeypatch.setattr(run, "JOBS", [Job("bench.put_get", quick_rounds=1)])
    monkeypatch.setattr(sys, "argv", ["run", "--quick"])
    assert run.main() == 0
    assert json.loads((tmp_path / "results" / "latest.json").read_text()) == record
    assert (tmp_path / "results" / "quick.json").exists()
    assert len(written) == 1


def test_the_peer_has_an_environment_of_its_own() -> None:
    assert {job.python for job in JOBS if job.module.endswith("transferqueue_peer")} == {PEER_PYTHON}
