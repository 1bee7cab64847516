"""The plain runner: every claim, every system, one after another on an otherwise idle machine; JSON, table and plot.

`python -m bench.run [--quick] [--only NAME ...]`. Each measurement is a process of its own; peers run in theirs.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PEER_PYTHON = ROOT / ".venv-peer" / "bin" / "python"
ZERO_COPY = {"RAY_ENABLE_ZERO_COPY_TORCH_TENSORS": "1"}


@dataclass(frozen=True)
class Job:
    module: str
    name: str
    rounds: int = 7
    python: Path = Path(sys.executable)
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return f"{self.module}:{self.name}" + ("+zero-copy" if self.environment else "")


JOBS = [
    Job("bench.put_get", "put_get", 15),
    Job("bench.baselines.raw_shm", "put_get", 15),
    Job("bench.baselines.ray_store", "put_get"),
    Job("bench.baselines.ray_store", "put_get", environment=ZERO_COPY),
    Job("bench.baselines.transferqueue_peer", "put_get", 5, PEER_PYTHON),
    Job("bench.put_get", "flat_cost"),
    Job("bench.put_get", "written_in_place"),
    Job("bench.small", "small"),
    Job("bench.baselines.ray_store", "small"),
    Job("bench.baselines.transferqueue_peer", "small", 7, PEER_PYTHON),
    Job("bench.small", "single_row_puts"),
    Job("bench.small", "keys_10k"),
    Job("bench.baselines.transferqueue_peer", "keys_10k", 7, PEER_PYTHON),
    Job("bench.small", "random_rows"),
    Job("bench.fan_out", "fan_out"),
    Job("bench.baselines.ray_store", "fan_out"),
    Job("bench.baselines.ray_store", "fan_out", environment=ZERO_COPY),
    Job("bench.baselines.transferqueue_peer", "fan_out", 5, PEER_PYTHON),
    Job("bench.footprint", "metadata_size", 1),
    Job("bench.footprint", "resident_copies", 1),
]


def run_job(job: Job, rounds: int) -> list[dict[str, Any]]:
    """The measurements of one process; raises RuntimeError with its last lines when it failed."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "RAY_worker_niceness": "0"} | job.environment
    environment.pop("TRANSFERQUEUE_SESSION", None)
    command = [str(job.python), "-m", job.module, job.name, "--rounds", str(rounds)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False)
    for line in done.stdout.splitlines():
        if line.startswith("RESULT "):
            found: list[dict[str, Any]] = json.loads(line.removeprefix("RESULT "))
            return found
    raise RuntimeError(f"{job.label} gave no result:\n{(done.stdout + done.stderr)[-2000:]}")


def show(results: list[dict[str, Any]]) -> str:
    """A markdown table: medians in ms, ratios to the memcpy of the same run, and the facts measured beside them."""
    lines = [
        "| claim | system | put ms | get ms | put + get / memcpy | get / memcpy | beside it |",
        "|---|---|---|---|---|---|---|",
    ]
    for item in results:
        summary, facts = item["summary"], item["facts"]

        def cell(name: str, digits: int, summary: dict[str, float] = summary) -> str:
            return f"{summary[name]:.{digits}f}" if summary.get(name) else ""

        shown = ", ".join(
            f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in facts.items()
        )
        lines.append(
            f"| {item['claim']} | {item['system']} | {cell('put_ms', 3)} | {cell('get_ms', 3)} "
            f"| {cell('put_get_ratio', 2)} | {cell('get_ratio', 3)} | {shown} |"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="a third of the rounds, our own claims only")
    parser.add_argument("--only", nargs="*", default=[], help="labels (or parts of them) of the jobs to run")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    arguments = parser.parse_args()
    jobs = [job for job in JOBS if not arguments.only or any(part in job.label for part in arguments.only)]
    if arguments.quick:
        jobs = [job for job in jobs if "baselines" not in job.module or job.module.endswith("raw_shm")]
    results, failed = [], []
    for job in jobs:
        began = time.perf_counter()
        try:
            results.extend(run_job(job, max(job.rounds // 3, 2) if arguments.quick else job.rounds))
        except (RuntimeError, subprocess.TimeoutExpired, FileNotFoundError) as error:
            failed.append(job.label)
            print(f"FAILED {job.label}: {error}", file=sys.stderr)
        print(f"{job.label}: {time.perf_counter() - began:.1f} s", flush=True)
    arguments.output.mkdir(parents=True, exist_ok=True)
    record = {
        "machine": {"cpus": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()},
        "taken": time.strftime("%Y-%m-%d %H:%M:%S"),
        "failed": failed,
        "results": results,
    }
    name = "quick.json" if arguments.quick or arguments.only else "latest.json"
    (arguments.output / name).write_text(json.dumps(record, indent=1) + "\n")
    print("\n" + show(results))
    if not arguments.only:
        from bench.plot import plot

        plot(results, arguments.output / name.replace(".json", ".png"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
