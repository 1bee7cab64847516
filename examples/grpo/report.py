"""What a run leaves behind: the cost table and the accuracies in the terminal, `reward.csv` and `reward.png`."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from examples.common.events import Evaluated
from examples.grpo.events import Cost, Finished, Stepped


class RunRecord:
    """Collects the events that the report is made of."""

    def __init__(self) -> None:
        self.steps: list[Stepped] = []
        self.evaluations: list[Evaluated] = []
        self.finished: Finished | None = None

    def add(self, event: object) -> None:
        """Keeps an event when the report needs it."""
        if isinstance(event, Stepped):
            self.steps.append(event)
        elif isinstance(event, Evaluated):
            self.evaluations.append(event)
        elif isinstance(event, Finished):
            self.finished = event

    def gain(self) -> float:
        """Held-out accuracy after GRPO less that after the warm-up."""
        by_moment = {event.moment: event.accuracy for event in self.evaluations}
        return by_moment.get("after GRPO", 0.0) - by_moment.get("after warm-up", 0.0)


def print_report(console: Console, record: RunRecord) -> None:
    """The table of costs per step, and held-out accuracy over the run."""
    if record.finished is not None and record.finished.costs:
        console.print(cost_table(record.finished.costs))
    table = Table(title="Held-out accuracy", title_justify="left")
    table.add_column("moment")
    table.add_column("accuracy", justify="right")
    table.add_column("worked out", justify="right")
    for event in record.evaluations:
        if not event.moment.startswith("step"):
            table.add_row(event.moment, f"{event.accuracy:.3f}", f"{event.metrics['response/worked_share']:.2f}")
    console.print(table)
    console.print(f"Rise from warm-up through GRPO: {record.gain():+.3f}", highlight=False)


def cost_table(costs: Sequence[Cost]) -> Table:
    """One column per way of passing, all numbers per step and measured in this run."""
    table = Table(title="Cost of a step: through the controller, and through shared memory", title_justify="left")
    table.add_column("per step")
    for cost in costs:
        table.add_column(f"passing {cost.passing} ({cost.steps} steps)", justify="right")
    rows: list[tuple[str, Callable[[Cost], str]]] = [
        ("serialised by the controller into calls", lambda c: _size(c.sent_bytes / c.steps)),
        ("received by the controller", lambda c: _size(c.received_bytes / c.steps)),
        ("controller thread, processor time", lambda c: f"{1e3 * c.controller_cpu_s / c.steps:.1f} ms"),
        ("written to shared memory", lambda c: _size(c.written_bytes / c.steps)),
        ("read by the ranks as views of shared memory", lambda c: _size(c.viewed_bytes / c.steps)),
        ("read by the ranks as copies (fields under 64 KiB)", lambda c: _size(c.copied_bytes / c.steps)),
        ("weights, with either passing: written", lambda c: _size(c.weights_written_bytes / c.steps)),
        ("weights, with either passing: read as views", lambda c: _size(c.weights_viewed_bytes / c.steps)),
    ]
    for label, value in rows:
        table.add_row(label, *(value(cost) for cost in costs))
    return table


def write_csv(path: Path, steps: Sequence[Stepped]) -> None:
    """One line per GRPO step: metrics, seconds per stage, bytes."""
    if not steps:
        return
    metric_names = sorted(steps[0].metrics)
    stage_names = list(steps[0].stage_s)
    cost_names = ["sent_bytes", "received_bytes", "controller_cpu_s", "written_bytes", "viewed_bytes", "copied_bytes"]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["step", *metric_names, *(f"{name}_s" for name in stage_names), *cost_names])
        for event in steps:
            writer.writerow(
                [
                    event.step,
                    *(f"{event.metrics[name]:.6g}" for name in metric_names),
                    *(f"{event.stage_s[name]:.4f}" for name in stage_names),
                    *(getattr(event.cost, name) for name in cost_names),
                ]
            )


def write_plot(path: Path, record: RunRecord) -> None:
    """Mean reward of each step and held-out accuracy; below, how long responses are."""
    if not record.steps:
        return
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    numbers = [event.step for event in record.steps]
    figure, (upper, lower) = pyplot.subplots(2, 1, sharex=True, figsize=(7, 6), height_ratios=(2, 1))
    upper.plot(numbers, [event.metrics["reward/mean"] for event in record.steps], label="mean reward of the step")
    held_out = [event for event in record.evaluations if event.moment != "before warm-up"]
    upper.plot(
        [event.step for event in held_out], [event.accuracy for event in held_out], "o--", label="held-out accuracy"
    )
    upper.set_ylim(0, 1.02)
    upper.legend(loc="lower right")
    upper.set_title("GRPO on chain_sum")
    lower.plot(numbers, [event.metrics["response/length"] for event in record.steps], color="tab:green")
    lower.set_ylabel("response tokens")
    lower.set_xlabel("GRPO step")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _size(nbytes: float) -> str:
    if nbytes < 1e3:
        return f"{nbytes:.0f} B"
    return f"{nbytes / 1e3:.1f} kB" if nbytes < 1e6 else f"{nbytes / 1e6:.2f} MB"
