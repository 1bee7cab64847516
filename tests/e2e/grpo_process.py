"""Runs `python -m examples.grpo` as a user does, with a model and batches small enough for a test."""

from __future__ import annotations

import csv
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_LIMIT_S = 400
_TINY = (
    "model.hidden_size=32",
    "model.num_layers=1",
    "data.train_batch_size=2",
    "data.val_size=8",
    "actor_rollout_ref.actor.ppo_mini_batch_size=2",
    "trainer.total_training_steps=2",
    "trainer.compare_steps=1",
    "trainer.warm_up.examples=640",
    "trainer.storage_size=64MiB",
)


@dataclass(frozen=True)
class FinishedRun:
    """Exit code, what was printed (both streams), and where the run wrote."""

    code: int
    output: str
    folder: Path

    def steps(self) -> list[dict[str, float]]:
        """The rows of `reward.csv`."""
        with (self.folder / "reward.csv").open() as file:
            return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]

    def controller_nbytes(self) -> list[float]:
        """What went out of and into the controller, by step."""
        return [row["sent_bytes"] + row["received_bytes"] for row in self.steps()]

    def session(self) -> str:
        """The name of the run's session."""
        found = re.search(r"session (\S+)", self.output)
        if found is None:
            raise ValueError(f"no session in the output:\n{self.output}")
        return found.group(1)


def run_example(output_dir: Path, *arguments: str) -> FinishedRun:
    """One run to its end. `TimeoutError` with the output so far when it takes too long."""
    command = [sys.executable, "-m", "examples.grpo", *arguments, *_TINY]
    command += [f"trainer.output_dir={output_dir}", "trainer.name=tiny"]
    environment = {**os.environ, "COLUMNS": "200", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=_LIMIT_S)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            raise TimeoutError(f"no end after {_LIMIT_S} s:\n{output}") from None
        raise
    return FinishedRun(process.returncode, output, output_dir / "tiny")
