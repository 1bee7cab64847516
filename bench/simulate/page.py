"""docs/simulation.md, from the outcomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields

from bench.simulate.costs import Cluster, Costs, Load
from bench.simulate.step import Outcome

Outcomes = Mapping[str, Mapping[int, Outcome]]
OURS = "homes"
_GB = 1e9


_HEAD = """\
# Clusters that we do not have

Written by `python -m bench.simulate.run`: a discrete-event simulation (SimPy) of one GRPO step. Half of the nodes roll
out and half of them train, {ranks} ranks a node, {gbits:.0f} Gbit/s each way. The load grows with the cluster:
{rows} rows a rollout rank and step in {puts} puts, {kib:.0f} KiB read a row, {passes} passes and an update by replicas
of {tensor_parallel} ranks. Computation takes {compute_s:.0f} s in all; what a system adds to that is its time.

It answers which resource gives out first, and about where. It knows no stragglers, no loss, no switch above the nodes'
own cards and no garbage collection. The costs are those of one small machine (below), and a step of 256 nodes has never
been run.

- **homes**: this library. Payload stays with its producer, each node pulls what its ranks read once, and one node keeps
  the index of the partition, which ranks of a node that read the same ask once together. (*each rank asks*: as it was.)
- **central store**: every put and get goes through a store on the head node; readers have copies of their own.
- **through the controller**: outputs come back to the controller, and inputs go out with its calls.
"""


def page(costs: Costs, how: Mapping[str, str], load: Load, outcomes: Outcomes) -> str:
    """The whole page as Markdown."""
    cluster = Cluster(2)
    largest = max(next(iter(outcomes.values())))
    head = _HEAD.format(
        ranks=cluster.ranks,
        gbits=cluster.wire_bytes_s * 8 / 1e9,
        rows=load.rows,
        puts=load.puts,
        kib=load.read_bytes / 1024,
        passes=load.passes,
        tensor_parallel=load.tensor_parallel,
        compute_s=load.rollout_s + load.passes * load.pass_s + load.update_s,
    )
    lines = [
        head,
        *_table("Seconds that handing data over adds to a step", outcomes, lambda found: f"{found.overhead_s:.2f}"),
        *_table("What is busy longest, and for how many seconds of the step", outcomes, _busiest),
        *_table("Gigabytes over the wire", outcomes, _wire),
        *_table("Most gigabytes of payload on one node", outcomes, _peak),
        *_table("Seconds that the home of the partition is busy", outcomes, _home),
        "## The first bottleneck, and what helps",
        "",
        *_verdict(outcomes, largest),
        "",
        "## Costs",
        "",
        "Measured by `python -m bench.simulate.fit` on one machine, the network being loopback.",
        "",
        "| cost | value | what was measured |",
        "| --- | --- | --- |",
    ]
    for field in fields(Costs):
        lines.append(f"| {field.name} | {_cost(getattr(costs, field.name))} | {how.get(field.name, '')} |")
    return "\n".join([*lines, ""])


def _wire(outcome: Outcome) -> str:
    return f"{sum(outcome.usage.sent_bytes.values()) / _GB:.1f}"


def _peak(outcome: Outcome) -> str:
    return f"{max(outcome.usage.peak_bytes.values()) / _GB:.2f}"


def _table(title: str, outcomes: Outcomes, cell: Callable[[Outcome], str]) -> list[str]:
    sizes = list(next(iter(outcomes.values())))
    return [
        f"## {title}",
        "",
        "| nodes | " + " | ".join(map(str, sizes)) + " |",
        "| --- |" + " --- |" * len(sizes),
        *(f"| {name} | " + " | ".join(cell(row[size]) for size in sizes) + " |" for name, row in outcomes.items()),
        "",
    ]


def _busiest(outcome: Outcome) -> str:
    name, seconds = outcome.busiest()
    return f"{name}: {seconds:.2f}"


def _home(outcome: Outcome) -> str:
    seconds = [busy for name, busy in outcome.usage.busy_s.items() if name.startswith("home ")]
    return f"{max(seconds):.2f}" if seconds else "-"


def _verdict(outcomes: Outcomes, largest: int) -> list[str]:
    ours = outcomes[OURS][largest]
    name, seconds = ours.busiest()
    lines = [
        f"On {largest} nodes the library adds {ours.overhead_s:.2f} s to a step. What gives out first is **{name}**,",
        f"busy for {seconds:.2f} s of the step. Against that:",
        "",
    ]
    for other, row in outcomes.items():
        if other == OURS:
            continue
        outcome = row[largest]
        factor = outcome.overhead_s / ours.overhead_s
        busiest, busy = outcome.busiest()
        lines.append(
            f"- {other}: {outcome.overhead_s:.2f} s ({factor:.2f} times as much); busiest then: {busiest}, {busy:.2f} s"
        )
    return lines


def _cost(value: float) -> str:
    return f"{value / _GB:.2f} GB/s" if value > 1e6 else f"{value * 1e6:.2f} us"
