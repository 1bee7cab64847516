"""Starts Ray, runs the controller in this process or in a Ray actor, shows what comes out of it."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

from rich.console import Console

from examples.common.cluster import ray_cluster
from examples.common.command_line import Outcome
from examples.common.config import to_lines, to_yaml
from examples.common.controller_actor import events_of
from examples.grpo.config import GrpoConfig
from examples.grpo.display import WORKED_OUT, make_display
from examples.grpo.groups import nodes_of
from examples.grpo.report import RunRecord, print_report, write_csv, write_plot
from examples.grpo.trainer import run_training


def run(config: GrpoConfig, console: Console) -> Outcome:
    """The whole job. Errors of ranks and of the data plane reach the caller."""
    started_s = time.perf_counter()
    folder = Path(config.trainer.output_dir) / config.trainer.name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(to_yaml(config))
    console.print(f"[bold]resolved configuration[/bold] (as a file: {folder}/config.yaml)", highlight=False)
    for line in to_lines(config):
        console.print(line, highlight=False, markup=False)
    console.print(WORKED_OUT, highlight=False, markup=False)
    record = RunRecord()
    with ray_cluster(config.trainer.ray_num_cpus, nodes_of(config)):
        # Closed also when showing fails: the generator takes session and ranks down while Ray is still there.
        with (
            make_display(console) as display,
            closing(events_of(run_training, config, config.trainer.controller)) as events,
        ):
            for event in events:
                record.add(event)
                display.show(event)
    write_csv(folder / "reward.csv", record.steps)
    write_plot(folder / "reward.png", record)
    print_report(console, record)
    seconds = time.perf_counter() - started_s
    console.print(f"{folder}/reward.png and reward.csv written; {seconds:.0f} s in all", highlight=False)
    return Outcome(record.gain(), config.trainer.required_gain)
