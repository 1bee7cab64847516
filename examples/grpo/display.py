"""Progress in the terminal: a live panel where there is one, plain lines elsewhere."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from examples.common.events import Evaluated, Started, WarmedUp
from examples.grpo.events import Event, Stepped

WORKED_OUT = (
    "'worked out' below: the share of answers that write down the running total first (7+5-3= is answered 12=9) rather "
    "than the result at once (9). GRPO is to find that this pays"
)
_LINES_SHOWN = 8
_STAGE_ORDER = ("gen", "old_log_prob", "ref", "reward", "adv", "update_actor", "weights")


class Display(Protocol):
    """Shows events as they come; a context manager around the run."""

    def show(self, event: Event) -> None: ...

    def __enter__(self) -> Display: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def make_display(console: Console) -> Display:
    """The live panel when the console is a terminal, else plain lines."""
    return LiveDisplay(console) if console.is_terminal else LineDisplay(console)


class LineDisplay:
    """One line per event, for logs."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def show(self, event: Event) -> None:
        line = line_of(event)
        if line:
            self._console.print(line, highlight=False, soft_wrap=True)

    def __enter__(self) -> LineDisplay:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class LiveDisplay:
    """Bars for warm-up and GRPO, the last steps as a table, wall-clock seconds per stage in its columns."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("{task.description:<10}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
            console=console,
        )
        self._tasks: dict[str, TaskID] = {}
        self._steps: list[Stepped] = []
        self._live = Live(self._render(), console=console, refresh_per_second=4)

    def show(self, event: Event) -> None:
        if isinstance(event, WarmedUp):
            self._advance("warm-up", event.step, event.total_steps, f"loss {event.metrics['warm_up/loss']:.3f}")
        elif isinstance(event, Stepped):
            self._advance("GRPO", event.step, event.total_steps, f"reward {event.metrics['reward/mean']:.3f}")
            self._steps = [*self._steps[1 - _LINES_SHOWN :], event]
        elif line := line_of(event):
            self._console.print(line, highlight=False)
        self._live.update(self._render())

    def _advance(self, name: str, done: int, total: int, note: str) -> None:
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(name, total=total, note="")
        self._progress.update(self._tasks[name], completed=done, note=note)

    def _render(self) -> Group:
        if not self._steps:
            return Group(self._progress)
        table = Table(box=None, header_style="bold", padding=(0, 1))
        for heading in ("step", "mean reward", "KL", "tokens", *_STAGE_ORDER, "KB through controller"):
            table.add_column(heading, justify="right")
        for event in self._steps:
            table.add_row(
                str(event.step),
                f"{event.metrics['reward/mean']:.3f}",
                f"{event.metrics['actor/kl']:.4f}",
                f"{event.metrics['response/length']:.1f}",
                *(f"{event.stage_s.get(stage, 0.0):.2f}s" for stage in _STAGE_ORDER),
                f"{(event.cost.sent_bytes + event.cost.received_bytes) / 1e3:.1f}",
            )
        return Group(self._progress, table)

    def __enter__(self) -> LiveDisplay:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)


def line_of(event: Event) -> str:
    """An event as one line of text; empty for what the final report shows."""
    if isinstance(event, Started):
        ranks = ", ".join(f"{name} {count}" for name, count in event.ranks.items())
        return f"model of {event.parameters:,} parameters; ranks: {ranks}; session {event.session}"
    if isinstance(event, WarmedUp):
        return f"warm-up {event.step:4d}/{event.total_steps}  loss {event.metrics['warm_up/loss']:.3f}"
    if isinstance(event, Evaluated):
        return (
            f"held-out accuracy {event.moment}: {event.accuracy:.3f}  "
            f"(worked out {event.metrics['response/worked_share']:.2f}, {event.metrics['response/length']:.1f} tokens)"
        )
    if isinstance(event, Stepped):
        stages = " ".join(f"{stage} {event.stage_s.get(stage, 0.0):.2f}" for stage in _STAGE_ORDER)
        through_kb = (event.cost.sent_bytes + event.cost.received_bytes) / 1e3
        return (
            f"step {event.step:3d}/{event.total_steps}  reward {event.metrics['reward/mean']:.3f}  "
            f"kl {event.metrics['actor/kl']:.4f}  tokens {event.metrics['response/length']:.1f}  "
            f"[s] {stages}  controller {through_kb:.1f} kB"
        )
    return ""
