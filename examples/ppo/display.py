"""Events as lines of text, and the table at the end."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from examples.common.events import Evaluated, Started, WarmedUp
from examples.ppo.events import Event, Layout, Stepped


def line_of(event: Event) -> str:
    """An event as text."""
    if isinstance(event, Started):
        ranks = ", ".join(f"{name} {count}" for name, count in event.ranks.items())
        return f"model of {event.parameters:,} parameters; ranks: {ranks}; session {event.session}"
    if isinstance(event, Layout):
        return "\n".join(event.lines)
    if isinstance(event, WarmedUp):
        return f"warm-up {event.step:4d}/{event.total_steps}  loss {event.metrics['warm_up/loss']:.3f}"
    if isinstance(event, Evaluated):
        worked, tokens = event.metrics["response/worked_share"], event.metrics["response/length"]
        return f"held-out accuracy {event.moment}: {event.accuracy:.3f}  (worked out {worked:.2f}, {tokens:.1f} tokens)"
    metrics = event.metrics
    squared_error = metrics.get("critic/squared_error")
    critic = "" if squared_error is None else f"  critic error {squared_error:.3f}"
    return (
        f"step {event.step:3d}/{event.total_steps}  reward {metrics['reward/mean']:.3f}  "
        f"kl {metrics['kl/per_response']:.3f} x {metrics['kl/coef']:.4f}{critic}  "
        f"tokens {metrics['response/length']:.1f}  {sum(event.stage_s.values()):.2f} s  "
        f"metadata {event.metadata_nbytes / 1e3:.1f} kB, payload {event.payload_nbytes / 1e3:.0f} kB"
    )


def print_table(console: Console, steps: list[Stepped], evaluations: list[Evaluated]) -> None:
    """Mean reward and held-out accuracy over the run, a line for each evaluation."""
    table = Table(title="PPO on chain_sum", title_justify="left")
    for heading in ("moment", "reward of the last 5 steps", "held-out accuracy", "worked out"):
        table.add_column(heading, justify="left" if heading == "moment" else "right")
    for event in evaluations:
        last = [stepped.metrics["reward/mean"] for stepped in steps if event.step - 5 < stepped.step <= event.step]
        reward = f"{sum(last) / len(last):.3f}" if last else ""
        table.add_row(event.moment, reward, f"{event.accuracy:.3f}", f"{event.metrics['response/worked_share']:.2f}")
    console.print(table)
