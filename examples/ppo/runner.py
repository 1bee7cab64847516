"""Starts Ray, runs the controller in this process or in a Ray actor, shows what comes out of it."""

from __future__ import annotations

import csv
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from rich.console import Console

from examples.common.cluster import start_ray
from examples.common.command_line import Outcome
from examples.common.config import to_lines, to_yaml
from examples.common.controller_actor import events_of
from examples.common.events import Evaluated
from examples.ppo.config import PpoConfig
from examples.ppo.display import line_of, print_table
from examples.ppo.events import Stepped
from examples.ppo.trainer import run_training


def run(config: PpoConfig, console: Console) -> Outcome:
    """The whole job. Errors of ranks and of the data plane reach the caller."""
    started_s = time.perf_counter()
    folder = Path(config.trainer.output_dir) / config.trainer.name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(to_yaml(config))
    for line in to_lines(config):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    start_ray(config.trainer.ray_num_cpus)
    import ray

    steps: list[Stepped] = []
    evaluations: list[Evaluated] = []
    try:
        # Closed also when showing fails: the generator takes session and ranks down while Ray is still there.
        with closing(events_of(run_training, config, config.trainer.controller)) as events:
            for event in events:
                console.print(line_of(event), highlight=False, markup=False, soft_wrap=True)
                if isinstance(event, Stepped):
                    steps.append(event)
                elif isinstance(event, Evaluated):
                    evaluations.append(event)
    finally:
        ray.shutdown()
    write_csv(folder / "steps.csv", steps)
    print_table(console, steps, evaluations)
    outcome = Outcome(evaluations[-1].accuracy - evaluations[0].accuracy, config.trainer.required_gain)
    seconds = time.perf_counter() - started_s
    console.print(f"Rise through PPO: {outcome.gain:+.3f}; {folder}/steps.csv written; {seconds:.0f} s in all")
    return outcome


def write_csv(path: Path, steps: Sequence[Stepped]) -> None:
    """One line per PPO step: metrics, seconds per stage, bytes."""
    names = sorted({name for event in steps for name in event.metrics})
    stages = sorted({name for event in steps for name in event.stage_s})
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["step", *names, *(f"{name}_s" for name in stages), "metadata_nbytes", "payload_nbytes"])
        for event in steps:
            # repr of a float keeps all of it: two runs can be compared to the last bit.
            numbers = [event.metrics.get(name, "") for name in names]
            seconds = [f"{event.stage_s.get(name, 0.0):.4f}" for name in stages]
            writer.writerow([event.step, *numbers, *seconds, event.metadata_nbytes, event.payload_nbytes])
