"""One call in a `Trace`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from transferqueue.controller.describe.sent_value import SentValue
from transferqueue.controller.describe.text import ranges_text


@dataclass
class TracedCall:
    """What went to which rank, and whose outputs were collected. Ranks have the numbers of the group that started them.

    Attributes:
        number: of the call in its trace, from 1.
        method: ``"Trainer.step"``.
        sent: rank -> argument -> what it was; positional arguments of unregistered methods are ``"argument 0"``.
        state: "running" until the result, or the error, was fetched.
        collected: the ranks whose outputs make up the result, in the order of its rows; None while it runs.
        pending: rank -> Ray reference, or call in this process, while it runs.
        seconds: from sending to having the result; None while it runs.
    """

    number: int
    method: str
    sent: Mapping[int, Mapping[str, SentValue]]
    state: Literal["running", "done", "failed"] = "running"
    collected: tuple[int, ...] | None = None
    seconds: float | None = None
    error: str = ""
    started_s: float = field(default_factory=time.monotonic)
    pending: Mapping[int, Any] = field(default_factory=dict)

    @property
    def rows(self) -> dict[int, int]:
        """Rank -> rows of its first batch, pads included; ranks that got no batch are left out."""
        counted = {
            rank: next((value.rows for value in arguments.values() if value.rows is not None), None)
            for rank, arguments in self.sent.items()
        }
        return {rank: rows for rank, rows in counted.items() if rows is not None}

    @property
    def pads(self) -> dict[int, int]:
        """Rank -> pads in its first batch."""
        return {
            rank: next(value.pads for value in arguments.values() if value.rows is not None)
            for rank, arguments in self.sent.items()
            if rank in self.rows
        }

    def sent_lines(self) -> list[str]:
        """What is printed when the call is sent."""
        lines = [f"{self._name}: sent to {ranks_of(list(self.sent))}"]
        by_text: dict[str, list[int]] = {}
        for rank, arguments in self.sent.items():
            text = "; ".join(f"{name}: {value}" for name, value in arguments.items()) or "no arguments"
            by_text.setdefault(text, []).append(rank)
        return lines + [f"    {ranks_of(ranks)}: {text}" for text, ranks in by_text.items()]

    def end_line(self) -> str:
        """What is printed when the result is there, or the error."""
        if self.state == "failed":
            return f"{self._name}: failed after {self.seconds or 0.0:.3f} s: {self.error}"
        return f"{self._name}: collected from {ranks_of(self.collected or ())} after {self.seconds or 0.0:.3f} s"

    def missing_line(self, ranks: Sequence[int]) -> str:
        """What is printed about ranks that have not answered."""
        return f"{self._name}: no answer after {time.monotonic() - self.started_s:.1f} s from {ranks_of(ranks)}"

    @property
    def _name(self) -> str:
        return f"[{self.number}] {self.method}"


def ranks_of(ranks: Sequence[int]) -> str:
    """``"rank 2"``, ``"ranks 0-3, 7"``, ``"no rank"``."""
    return f"rank{'s' if len(ranks) != 1 else ''} {ranges_text(ranks)}" if ranks else "no rank"
