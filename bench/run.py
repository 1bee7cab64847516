"""The runner: every claim, every system, one after another on an otherwise idle machine.

`python -m bench.run` writes bench/results/latest.json, the plots and docs/benchmarks.md. `--quick` runs our own claims
in a few rounds and writes bench/results/quick.json only; `--only PART ...` runs the jobs whose labels contain a part
and writes bench/results/only.json. Each job is a process of its own; peers run in theirs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.against_peers import add_comparisons
from bench.goals import GOALS, judge
from bench.page import goals_table, losses, peers_tables, write
from bench.report import FAILED, RESULT
from transferqueue.microbench import machine

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PEER_PYTHON = ROOT / ".venv-peer" / "bin" / "python"
ZERO_COPY = {"RAY_ENABLE_ZERO_COPY_TORCH_TENSORS": "1"}
JOB_TIMEOUT_S = 240


@dataclass(frozen=True)
class Job:
    """One process: the measurements `names` of a file (none: all of them), and how many rounds in the long and the
    quick run (0: left out of the quick one)."""

    module: str
    names: tuple[str, ...] = ()
    rounds: int = 7
    quick_rounds: int = 0
    python: Path = Path(sys.executable)
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """How it is called in messages and by `--only`."""
        return ":".join((self.module.removeprefix("bench."), *self.names)) + ("+zero-copy" if self.environment else "")


RAY, PEER = "bench.baselines.ray_store", "bench.baselines.transferqueue_peer"
JOBS = [
    Job("bench.put_get", ("put_get",), 15, 5),
    Job("bench.put_get", ("put_get_big",), 8),
    Job("bench.baselines.raw_shm", ("put_get",), 15, 5),
    Job("bench.baselines.raw_shm", ("put_get_big",), 8),
    Job(RAY, ("put_get", "put_get_big")),
    Job(RAY, ("put_get", "put_get_big"), environment=ZERO_COPY),
    Job(PEER, ("put_get",), 5, python=PEER_PYTHON),
    Job("bench.get_alone", (), 9, 3),
    Job("bench.written_in_place", (), 9, 3),
    Job("bench.small", ("small", "agent_loop"), 7, 3),
    Job("bench.small", ("single_row_puts",), 5),
    Job(RAY, ("small",)),
    Job(PEER, ("small",), 7, python=PEER_PYTHON),
    Job("bench.keys", (), 7, 2),
    Job(PEER, ("keys_10k",), 7, python=PEER_PYTHON),
    Job("bench.scale_rows", (), 5),
    Job("bench.random_rows", ("random_64",), 7, 3),
    Job("bench.random_rows", ("scattered",), 5),
    Job("bench.first_read", (), 9, 3),
    Job("bench.metadata", (), 5, 2),
    Job("bench.fan_out", (), 7),
    Job(RAY, ("fan_out",)),
    Job(RAY, ("fan_out",), environment=ZERO_COPY),
    Job(PEER, ("fan_out",), 5, python=PEER_PYTHON),
    Job("bench.memory", ("resident_copies",), 1, 1),
    Job("bench.memory", ("controller_payload",), 1),
    Job("bench.waiting", ("wake_up",), 5, 2),
    Job("bench.waiting", ("idle",), 5),
    Job("bench.concurrency", (), 5),
    Job("bench.step_costs", (), 3),
    Job("bench.two_nodes", (), 7),
    Job("bench.baselines.ray_two_nodes", (), 7),
    Job("bench.baselines.ray_two_nodes", (), 7, environment=ZERO_COPY),
    Job("bench.baselines.transferqueue_two_nodes", (), 5, python=PEER_PYTHON),
]


@dataclass(frozen=True)
class Outcome:
    """What a job left: results, and why each measurement that failed did, by its name."""

    results: list[dict[str, Any]]
    failures: dict[str, str]


def parse(job: Job, status: int, output: str, errors: str) -> Outcome:
    """The lines that `bench.report` prints. A job that ended badly without saying of what has failed as a whole, also
    where it left results before that."""
    results: list[dict[str, Any]] = []
    failures = {}
    for line in output.splitlines():
        if line.startswith(RESULT):
            results.extend(json.loads(line.removeprefix(RESULT)))
        elif line.startswith(FAILED):
            told = json.loads(line.removeprefix(FAILED))
            failures[f"{job.label} {told['name']}"] = told["error"]
    if not failures and (status != 0 or not results):
        words = [line for line in (errors or output).splitlines() if line.strip()] or ["it said nothing"]
        failures[job.label] = f"ended with {status}; its last words: {words[-1]}"
    return Outcome(results, failures)


def run_job(job: Job, rounds: int) -> Outcome:
    """One job, to its end or to the time limit."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "RAY_worker_niceness": "0"} | job.environment
    environment.pop("TRANSFERQUEUE_SESSION", None)
    command = [str(job.python), "-m", job.module, *job.names, "--rounds", str(rounds)]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=JOB_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return Outcome([], {job.label: f"took more than {JOB_TIMEOUT_S} s"})
    except FileNotFoundError:
        return Outcome([], {job.label: f"there is no {job.python.name} of its environment: run `make peers`"})
    return parse(job, done.returncode, done.stdout, done.stderr)


def chosen_jobs(quick: bool, only: Sequence[str]) -> list[tuple[Job, int]]:
    """Jobs and their rounds."""
    listed = [(job, job.quick_rounds if quick else job.rounds) for job in JOBS]
    return [(job, rounds) for job, rounds in listed if rounds and (not only or any(part in job.label for part in only))]


def run_all(jobs: Sequence[tuple[Job, int]]) -> dict[str, Any]:
    """The record: machine, results, failures, seconds of each job."""
    described, began = machine.describe(), time.perf_counter()
    results: list[dict[str, Any]] = []
    failures: dict[str, str] = {}
    seconds: dict[str, float] = {}
    for job, rounds in jobs:
        started = time.perf_counter()
        outcome = run_job(job, rounds)
        seconds[job.label] = round(time.perf_counter() - started, 1)
        results.extend(outcome.results)
        failures |= outcome.failures
        print(f"{seconds[job.label]:6.1f} s  {job.label}", flush=True)
        for name, why in outcome.failures.items():
            print(f"FAILED {name}: {why}", file=sys.stderr, flush=True)
    add_comparisons(results)
    return {
        "machine": described,
        "seconds": round(time.perf_counter() - began, 1),
        "seconds_of_jobs": seconds,
        "failed": failures,
        "results": results,
    }


def main() -> int:
    """Exit status 1 when a measurement failed. A goal that is not met is a result, not a failure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="our own claims in a few rounds, without Ray")
    parser.add_argument("--only", nargs="*", default=[], metavar="PART", help="jobs whose label contains one of these")
    arguments = parser.parse_args()
    record = run_all(chosen_jobs(arguments.quick, arguments.only))
    results = record["results"]
    name = "only" if arguments.only else "quick" if arguments.quick else "latest"
    (HERE / "results").mkdir(exist_ok=True)
    (HERE / "results" / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")
    verdicts = judge(GOALS, results)
    if name != "latest":
        verdicts = [verdict for verdict in verdicts if verdict.measured is not None]
    print("\n" + goals_table(verdicts))
    print("\n" + peers_tables(results))
    print("\n" + "\n".join(f"behind in {line}" for line in losses(results)))
    if name == "latest":
        write(record)
    print(f"\n{record['seconds']:.0f} s in all; bench/results/{name}.json")
    for label, why in record["failed"].items():
        print(f"FAILED {label}: {why}", file=sys.stderr)
    return 1 if record["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
