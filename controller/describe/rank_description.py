"""One rank of a `GroupDescription`."""

from __future__ import annotations

from dataclasses import dataclass

from transferqueue.controller.describe.rank_report import RankReport


@dataclass(frozen=True)
class RankDescription:
    """What is known of a rank, from the group, from Ray and from the rank itself.

    Attributes:
        rank: its number in the group; that of the actor's own group in a slice is `report.rank`.
        actor: its name, or id, in the cluster; empty where there is none, or where that is not known.
        node: address, and the start of the node's id.
        bundle: ``"placement group:bundle index"``; empty for ranks that are in no pool of this program.
        devices: the numbers of its accelerators.
        state: Ray's word on the actor: "alive", "starting" or "dead", and why; or `STOPPED`.
        report: what the rank said; of one that did not answer the last that it ever said, None when it never did.
        report_age_s: 0.0 for an answer to this question, None without any.
        running: the method that a rank which did not answer is running, where that could be seen.
    """

    rank: int
    node: str
    pid: int | None
    actor: str
    bundle: str
    devices: tuple[str, ...]
    state: str
    report: RankReport | None
    report_age_s: float | None
    running: str = ""

    @property
    def answered(self) -> bool:
        """Whether the rank answered within the deadline."""
        return self.report_age_s == 0.0

    def row(self) -> list[str]:
        """The cells of `HEADER`."""
        report = self.report
        unknown = "?"
        return [
            str(self.rank),
            f"{report.local_rank} of {report.local_world_size}" if report else unknown,
            self.node,
            self.bundle or "-",
            self.actor or "-",
            str(self.pid if self.pid is not None else unknown),
            ",".join(self.devices) or "none",
            report.process_group if report else unknown,
            self._state_text(),
        ]

    def _state_text(self) -> str:
        if self.answered:
            return f"{self.state}, {self.report.error}" if self.report and self.report.error else self.state
        parts = [self.state]
        if self.state != STOPPED and not self.state.startswith("dead"):
            parts.append("NO ANSWER")
        if self.running:
            parts.append(f"runs {self.running}")
        if self.report_age_s is not None:
            parts.append(f"as it was {self.report_age_s:.0f} s ago")
        return ", ".join(parts)


STOPPED = "stopped"
"""The state of ranks that their group ended."""

HEADER = ("rank", "local", "node", "bundle", "actor", "pid", "devices", "process group", "state")
